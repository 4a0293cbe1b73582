package app

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/importer"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Projects are the use cases of project files.
type Projects struct{ *Env }

// Projects returns the use cases of project files.
func (e *Env) Projects() Projects { return Projects{e} }

// ProjectDraft is a project file for the current directory.
type ProjectDraft struct {
	Text    string
	Report  *DetectReport
	Sources []string // files that it was made from
	HasRepo bool     // the directory is in a repository, or names one
}

// Draft makes a project file from what the current directory contains. It runs nothing.
func (p Projects) Draft() (d ProjectDraft, err error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return d, err
	}
	root, err := os.OpenRoot(opts.Dir)
	if err != nil {
		return d, fmt.Errorf("read the current directory: %w", err)
	}
	defer root.Close()
	found := detect.Detect(localrepo.WorkTree(root), filepath.Base(opts.Dir))
	return ProjectDraft{found.YAML(), found.Report(), found.Sources(), found.Remote != "" || localrepo.RepoRoot(opts.Dir) != ""}, nil
}

// Import converts container-use's settings to a project file. Each warning names a part without a counterpart.
func (p Projects) Import(file string) (text string, warnings []string, err error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return "", nil, err
	}
	text, warnings, err = importer.ContainerUse(file, detect.ProjectName(filepath.Base(opts.Dir)))
	return text, warnings, exiterr.New(workorder.ExitInvalid, err, "")
}

// Access lists what the agent of a project reaches, and which secrets it gets.
func (p Projects) Access(of *projects.Project) ([]job.Line, error) {
	o, err := of.Order(projects.OrderInput{Task: "x"}) // any text: it is not shown
	if err != nil {
		return nil, exiterr.New(workorder.ExitInvalid, err, "")
	}
	return job.Access(&o), nil
}

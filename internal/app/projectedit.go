package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Get returns the value of a key of a project, or its default, as Project.Value does.
func (p Projects) Get(ref, key string) (value any, shown string, err error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return nil, "", err
	}
	of, err := projects.Load(ref, opts)
	if err != nil {
		return nil, "", err
	}
	value, shown, err = of.Value(key)
	return value, shown, keyError(err)
}

// Edit changes the file of a project. It returns the file, and how many mistakes were and are in it. A change that makes a mistake
// returns projects.InvalidError, and writes nothing.
func (p Projects) Edit(ref string, edits ...projects.Edit) (file string, left int, err error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return "", 0, err
	}
	file, content, err := projects.Source(ref, opts)
	if err != nil {
		return "", 0, err
	}
	if projects.IsBuiltin(file) {
		return "", 0, exiterr.New(workorder.ExitUsage, fmt.Errorf("project %s is part of the program", ref),
			"copy it first: sandbox-agent project show "+text.Shell(ref)+" >"+projects.DefaultFile)
	}
	changed, problems, err := projects.Change(file, content, edits...)
	if err != nil {
		return file, 0, keyError(err)
	}
	return file, len(problems), replaceFile(git.AbsPath(file, opts.Dir, opts.Home), changed)
}

// replaceFile replaces a file and keeps its mode. It does not follow a symbolic link: one in a repository may lead anywhere.
func replaceFile(path string, content []byte) error {
	st, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("write project file: %w", err)
	}
	if st.Mode()&os.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return fmt.Errorf("write project file: %w", err)
		}
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s is a symbolic link", text.Clean(path)),
			"name the file itself: -p "+text.Shell(target))
	}
	err = renameio.WriteFile(path, content, st.Mode().Perm(), renameio.WithTempDir(filepath.Dir(path)), renameio.IgnoreUmask())
	if err != nil {
		return fmt.Errorf("write project file %s: %w", path, err)
	}
	return nil
}

// keyError gives an error of a key its exit code and hint.
func keyError(err error) error {
	if wrong, ok := errors.AsType[*yamlkeys.PathError](err); ok {
		return exiterr.New(workorder.ExitUsage, err, wrong.Hint)
	}
	if errors.Is(err, yamlkeys.ErrNotSet) {
		return NotFound(err, "`sandbox-agent project show --effective` prints all values")
	}
	return err
}

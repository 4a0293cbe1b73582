package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/artifact"
	"github.com/sandbox-agent/sandbox-agent/internal/host/presets"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Code runs code in presets and sessions.
type Code struct{ *Env }

// Code returns the use cases of code in presets and sessions.
func (e *Env) Code() Code { return Code{e} }

// Variables that name where presets are.
const (
	PresetsFile = "SANDBOX_AGENT_PRESETS"
	PresetsDir  = "SANDBOX_AGENT_PRESETS_DIR"
)

// presetOptions says where this user's presets are. It accepts the names of variables, file and directory until the
// previous release.
func (c Code) presetOptions() presets.Options {
	o := presets.Options{
		File: cmp.Or(c.Getenv(PresetsFile), c.Getenv("SANDBOX_AGENT_ENVIRONMENTS")),
		Dir:  cmp.Or(c.Getenv(PresetsDir), c.Getenv("SANDBOX_AGENT_ENVIRONMENTS_DIR")), Getenv: c.Getenv,
	}
	o.Named = o.File != ""
	if dir := statedir.SettingsDir(c.Getenv); dir != "" {
		o.File = cmp.Or(o.File, newOrOld(dir, "presets.yaml", "environments.yaml"))
		o.Dir = cmp.Or(o.Dir, newOrOld(dir, "presets", "environments"))
	}
	return o
}

// newOrOld returns the path of a file in dir by its name, or by its old name if only that exists.
func newOrOld(dir, name, old string) string {
	path, oldPath := filepath.Join(dir, name), filepath.Join(dir, old)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(oldPath); err == nil {
			return oldPath
		}
	}
	return path
}

// Presets reads the presets. Problems go to warn, if it is not nil; a problem of one preset is no error.
func (c Code) Presets(warn func(string)) (*presets.Registry, error) {
	o := c.presetOptions()
	o.Warn = warn
	r, err := presets.Open(o)
	return r, exiterr.New(workorder.ExitInvalid, err, "fix it, then check with: sandbox-agent preset validate")
}

// CheckPresets checks a file of presets, or the user's own for "", and returns the number of presets that can be used.
func (c Code) CheckPresets(file string) (int, error) {
	o := c.presetOptions()
	if file != "" {
		o.File, o.Named = file, true
	}
	r, err := presets.Open(o)
	errs := []error{err}
	for _, p := range r.Problems() {
		errs = append(errs, p)
	}
	return len(r.Presets()), exiterr.New(workorder.ExitInvalid, errors.Join(errs...), "")
}

// BuildArtifact builds the artifact of a definition in the directory out.
func (c Code) BuildArtifact(ctx context.Context, file, out string, show func(workorder.Event)) error {
	d, err := artifact.ReadDefinition(file)
	if err != nil {
		return exiterr.New(workorder.ExitInvalid, err, "")
	}
	dir, err := c.StateDir()
	if err != nil {
		return err
	}
	b := artifact.Builder{State: dir, Progress: show, Building: sayBuilding(c.Env), Images: func() (artifact.Images, error) {
		be, err := c.Engine()
		if err != nil {
			return nil, err
		}
		return be.Images, nil
	}}
	return b.Build(ctx, d, out)
}

// CheckArtifacts checks artifacts. It warns of metadata without a meaning.
func (c Code) CheckArtifacts(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if _, err := artifact.Read(dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
		}
		unknown, _ := artifact.Unknown(dir) // Read reports metadata that cannot be read
		for _, key := range unknown {
			c.Warn(fmt.Sprintf("%s: %s: the key %q is unknown and means nothing", dir, artifact.MetadataFile, key))
		}
	}
	return exiterr.New(workorder.ExitInvalid, errors.Join(errs...), "")
}

// Artifacts lists the artifacts in a directory, or in the user's own for "". It warns of broken ones.
func (c Code) Artifacts(dir string) ([]code.Preset, error) {
	if dir == "" {
		dir = c.presetOptions().Dir
	} else if _, err := os.Stat(dir); err != nil {
		return nil, Usagef("list artifacts: %w", err)
	}
	all, problems := presets.Scan(dir)
	for _, p := range problems {
		c.Warn(strings.ReplaceAll(p.Error(), "\n", "; "))
	}
	return all, nil
}

// Preset returns the presets for a command that uses one of them, and its name. ref is a name, or the path of an artifact.
func (c Code) Preset(ref string) (all func() []code.Preset, name string, err error) {
	r, err := c.Presets(nil)
	if err != nil {
		return nil, "", err
	}
	if !strings.ContainsRune(ref, filepath.Separator) {
		if err := r.Problem(ref); err != nil {
			return nil, "", exiterr.New(workorder.ExitInvalid, err, "")
		}
		return r.Presets, ref, nil
	}
	p, err := artifact.Read(ref)
	if err != nil {
		return nil, "", exiterr.New(workorder.ExitInvalid, fmt.Errorf("preset %s: %w", ref, err),
			"`sandbox-agent artifact validate` lists what is wrong")
	}
	if p.Source, err = filepath.Abs(ref); err != nil {
		return nil, "", err
	}
	return func() []code.Preset { return []code.Preset{p} }, p.Name, nil
}

// Variables that say when sessions end, in seconds.
const (
	SessionIdle = "SESSION_IDLE_TIMEOUT"
	SessionLife = "SESSION_MAX_LIFETIME"
)

// ProjectDir is the variable that names a directory for /project, instead of that of a preset. PROJECT_DIR is its short name.
const ProjectDir = "SANDBOX_AGENT_PROJECT_DIR"

// Artifacts to build when a server starts: definitions, separated as in PATH.
const artifactsVariable = "SANDBOX_AGENT_ARTIFACTS"

// BuildListed builds the artifacts of the definitions that SANDBOX_AGENT_ARTIFACTS names in the directory of presets, unless they
// are there and newer, and reports whether it built one. It warns of those that fail.
func (c Code) BuildListed(ctx context.Context, warn func(string)) (built bool) {
	for _, file := range filepath.SplitList(c.Getenv(artifactsVariable)) {
		made, err := c.buildOnce(ctx, file)
		if built = built || made; err != nil {
			warn(fmt.Sprintf("%s: %s: %s", artifactsVariable, file, oneLine(err)))
		}
	}
	return built
}

func (c Code) buildOnce(ctx context.Context, file string) (built bool, err error) {
	d, err := artifact.ReadDefinition(file)
	if err != nil {
		return false, err
	}
	out := filepath.Join(c.presetOptions().Dir, d.Name)
	wanted, err := os.Stat(file)
	if err != nil {
		return false, err
	}
	if made, err := os.Stat(filepath.Join(out, artifact.MetadataFile)); err == nil && !made.ModTime().Before(wanted.ModTime()) {
		return false, nil
	}
	err = c.BuildArtifact(ctx, file, out, nil)
	return err == nil, err
}

// Options returns the options of a runner that the environment sets.
func (c Code) Options() (code.Options, error) {
	o := code.Options{Image: c.SmallImage, Getenv: c.Getenv, Fallback: c.fallback("")}
	var errs []error
	if dir := cmp.Or(c.Getenv(ProjectDir), c.Getenv("PROJECT_DIR")); dir != "" {
		var err error
		o.Project, err = filepath.Abs(dir)
		errs = append(errs, err)
	}
	for name, to := range map[string]*time.Duration{SessionIdle: &o.IdleTimeout, SessionLife: &o.TTL} {
		text := c.Getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n == 0 {
			errs = append(errs, fmt.Errorf("%s %q: use seconds, such as 300", name, text))
			continue
		}
		*to = time.Duration(n) * time.Second
	}
	return o, exiterr.New(workorder.ExitUsage, errors.Join(errs...), "")
}

// Runner opens a runner for one command, with the presets that it may use. fallback is the value of the flag. Its
// sessions outlive it. done closes it.
func (c Code) Runner(presets func() []code.Preset, fallback string) (r *code.Runner, done func(context.Context) error, err error) {
	o, err := c.Options()
	if err != nil {
		return nil, nil, err
	}
	o.PersistSessions, o.Presets = true, presets
	if fallback != "" {
		o.Fallback = c.fallback(fallback)
	}
	if dir, err := c.StateDir(); err == nil {
		o.PersistedDir = filepath.Join(dir, "sessions")
	}
	return c.Open(o)
}

// abandonedTime bounds cleaning up after a signal.
const abandonedTime = 5 * time.Second

// Open opens a runner. done closes it.
func (c Code) Open(o code.Options) (r *code.Runner, done func(context.Context) error, err error) {
	m, err := c.Manager(false)
	if err != nil {
		return nil, nil, err
	}
	// Artifacts of others are programs of this machine that the user has chosen.
	if o.HostManager, err = c.manager(sandbox.Options{AllowHost: true}); err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	r = code.NewRunner(m, o)
	return r, func(ctx context.Context) error {
		clean := context.WithoutCancel(ctx)
		if ctx.Err() != nil { // the user waits for the end; sandboxes of sessions end by themselves
			var cancel func()
			clean, cancel = context.WithTimeout(clean, abandonedTime)
			defer cancel()
		}
		return errors.Join(r.Close(clean), m.Close(), o.HostManager.Close())
	}, nil
}

// CodeError gives an error of package code its exit code and hint.
func CodeError(err error) error {
	if e, ok := errors.AsType[*code.UnknownPresetError](err); ok {
		return NotFound(e, DidYouMean(diag.Nearest(e.Name, e.Available), "list presets with: sandbox-agent preset list"))
	}
	if e, ok := errors.AsType[*code.SessionPresetError](err); ok {
		return exiterr.New(workorder.ExitUsage, e, "take another session, or end it with `sandbox-agent session rm`")
	}
	if errors.Is(err, code.ErrNoSessions) {
		return exiterr.New(workorder.ExitInvalid, err, "")
	}
	return EndError(err)
}

// SmallImage returns the image of presets and pools. It builds the image if it is missing, and notes that.
func (e *Env) SmallImage(ctx context.Context) (string, error) {
	be, err := e.Engine()
	if err != nil {
		return "", err
	}
	built := false
	img, err := be.Images.Small(ctx, func(name string) {
		built = true
		sayBuilding(e)(name)
	}, nil)
	if err != nil {
		return "", err
	}
	if built {
		e.Say(fmt.Sprintf("Image %q built successfully", img.Name))
	}
	return img.Name, nil
}

// sayBuilding returns a function that says that an image is built.
func sayBuilding(e *Env) func(image string) {
	return func(image string) { e.Say(fmt.Sprintf("Image %q not found, building...", image)) }
}

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ImportedSandbox is a project file with the settings of a sandbox.
type ImportedSandbox struct {
	File    string   `json:"file"`
	Text    string   `json:"-"`
	Changed []string `json:"changed"` // keys
	Dropped []string `json:"dropped"` // settings that the file does not have, with reasons
}

// ImportSandbox writes the settings of a sandbox to a project file: file, or if that is "" the one that the sandbox was made of, or else
// that of the current directory. A file that exists keeps its other values, comments and order. With dryRun nothing is written.
func (p Projects) ImportSandbox(ctx context.Context, name, file string, dryRun bool) (d ImportedSandbox, err error) {
	sb, done, err := p.Sandboxes().Get(ctx, name)
	if err != nil {
		return d, err
	}
	defer done()
	s := sb.Spec()
	opts, err := projects.SystemOptions()
	if err != nil {
		return d, err
	}
	d.File = cmp.Or(file, s.Project, projects.DefaultFile)
	path := git.AbsPath(d.File, opts.Dir, opts.Home)
	old, err := os.ReadFile(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		old, err = []byte("name: "+detect.ProjectName(filepath.Base(filepath.Dir(path)))+"\nrepo: .\n"), nil
	}
	if err != nil {
		return d, fmt.Errorf("read project file: %w", err)
	}
	if of := s.BranchOf(); !isNew && file == "" && s.Project == "" && of != "" &&
		!localrepo.BelongsTo(ctx, of, localrepo.RepoRoot(filepath.Dir(path))) {
		return d, exiterr.New(workorder.ExitUsage, fmt.Errorf("%s is a project file of another repository than that of %s, %s", path, name, of),
			"go there, or replace its settings with: --output "+text.Shell(path))
	}
	has, err := projects.Parse(d.File, old, opts)
	if err != nil {
		return d, err
	}
	i := &sandboxImport{of: has}
	if err := i.compare(s); err != nil {
		return d, err
	}
	changed, _, err := projects.Change(d.File, old, i.edits...)
	if err != nil {
		return d, keyError(err)
	}
	d.Text, d.Changed, d.Dropped = string(changed), []string{}, append([]string{}, i.dropped...)
	for _, e := range i.edits {
		d.Changed = append(d.Changed, e.Key)
	}
	switch {
	case dryRun:
		return d, nil
	case isNew:
		err = os.WriteFile(path, changed, 0o600)
	case len(i.edits) > 0:
		err = replaceFile(path, changed)
	}
	return d, err
}

// sandboxImport collects the edits that make a project that of a sandbox.
type sandboxImport struct {
	of      *projects.Project
	edits   []projects.Edit
	dropped []string
}

func (i *sandboxImport) drop(format string, a ...any) {
	i.dropped = append(i.dropped, fmt.Sprintf(format, a...))
}

// set sets a key whose value differs; no words unset it.
func (i *sandboxImport) set(key string, has, words []string) {
	switch {
	case slices.Equal(has, words):
	case len(words) == 0:
		i.edits = append(i.edits, projects.Edit{Change: yamlkeys.ChangeUnset, Key: key})
	default:
		i.edits = append(i.edits, projects.Edit{Change: yamlkeys.ChangeSet, Key: key, Words: words})
	}
}

func (i *sandboxImport) one(key, has, value string) {
	words := func(t string) []string { return slices.DeleteFunc([]string{t}, func(t string) bool { return t == "" }) }
	i.set(key, words(has), words(value))
}

// entries sets and unsets the entries of a mapping that differ.
func (i *sandboxImport) entries(key string, has, now map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if _, stays := now[name]; !stays {
			i.set(key+"."+name, []string{""}, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if value, ok := has[name]; !ok || value != now[name] {
			i.set(key+"."+name, nil, []string{now[name]})
		}
	}
}

func (i *sandboxImport) compare(s sandbox.Spec) error {
	spec := i.of.Spec()
	has, err := boxSpec(spec)
	if err != nil {
		return err
	}
	now := cmp.Or(s.Box, &sandbox.BoxSpec{})
	if own := s.Runtime == sandbox.RuntimeContainer && strings.HasPrefix(s.Image, "sandbox-agent"); !own {
		i.one("image", spec.Image, s.Image)
	}
	i.env(s, now)
	i.network(s, spec.Network, now)
	i.limits(s)
	i.one("oci_runtime", spec.OCIRuntime, s.OCIRuntime)
	i.rest(s, now)
	if s.Box == nil { // the other keys are those of a box
		return nil
	}
	i.set("packages", has.Packages, now.Packages)
	i.entries("tools", has.Tools, now.Tools)
	i.set("lifecycle.setup", has.Setup, now.Setup)
	if has.Supabase != now.Supabase {
		i.set("supabase", nil, []string{strconv.FormatBool(now.Supabase)})
	}
	for _, of := range has.Services {
		if !slices.ContainsFunc(now.Services, func(n sandbox.Service) bool { return n.Name == of.Name }) {
			i.set("services."+of.Name, []string{""}, nil)
		}
	}
	for _, of := range now.Services {
		n := slices.IndexFunc(has.Services, func(h sandbox.Service) bool { return h.Name == of.Name })
		was := sandbox.Service{}
		if n >= 0 {
			was = has.Services[n]
		}
		i.service("services."+of.Name+".", was, of)
	}
	return nil
}

// env compares variables. In a project file $ refers to the image's variables.
func (i *sandboxImport) env(s sandbox.Spec, box *sandbox.BoxSpec) {
	now := map[string]string{}
	literal := func(name, value string) {
		switch {
		case strings.HasPrefix(name, "GIT_CONFIG_"): // of --workspace
		case yamlkeys.LooksSecret(value):
			i.drop("env.%s: it looks like a secret: put a reference under secrets: sandbox-agent project add secrets %[1]s=env://%[1]s", name)
		default:
			now[name] = text.EscapeReferences(value)
		}
	}
	maps.Copy(now, box.ImageEnv)
	maps.Copy(now, s.ImageEnv)
	for name, value := range box.Env {
		literal(name, value)
	}
	for _, kv := range s.Env {
		name, value, _ := strings.Cut(kv, "=")
		delete(now, name)
		literal(name, value)
	}
	plain, has := text.SplitReferences(i.of.Env)
	if has == nil {
		has = map[string]string{}
	}
	for name, value := range plain {
		has[name] = text.EscapeReferences(value)
	}
	key := "env"
	if _, _, err := i.of.Value(key); err != nil {
		if _, _, err := i.of.Value("lifecycle.env"); err == nil {
			key = "lifecycle.env"
		}
	}
	if s.Box == nil && s.Project == "" { // the sandbox has never had those of a project
		maps.DeleteFunc(has, func(name, _ string) bool { _, stays := now[name]; return !stays })
	}
	i.entries(key, has, now)
}

func (i *sandboxImport) service(key string, has, now sandbox.Service) {
	i.one(key+"image", has.Image, now.Image)
	i.set(key+"command", shellWords(has.Command), shellWords(now.Command))
	i.entries(key+"env", has.Env, now.Env)
	i.set(key+"ports", has.Ports, now.Ports)
	i.set(key+"volumes", has.Volumes, now.Volumes)
	const usual = 60 // seconds
	i.one(key+"start_timeout", seconds(cmp.Or(has.StartTimeoutSeconds, usual)), seconds(cmp.Or(now.StartTimeoutSeconds, usual)))
	if h := now.Healthcheck; h != nil && !reflect.DeepEqual(has.Healthcheck, h) {
		was := cmp.Or(has.Healthcheck, &sandbox.Healthcheck{})
		i.set(key+"healthcheck.test", was.Test, h.Test)
		i.one(key+"healthcheck.interval", seconds(was.IntervalSeconds), seconds(h.IntervalSeconds))
		i.one(key+"healthcheck.timeout", seconds(was.TimeoutSeconds), seconds(h.TimeoutSeconds))
		if was.Retries != h.Retries {
			i.one(key+"healthcheck.retries", "", strconv.Itoa(h.Retries))
		}
	} else if h == nil && has.Healthcheck != nil {
		i.set(key+"healthcheck", []string{""}, nil)
	}
}

// shellWords returns a command as a project file has it: that of a shell as one text.
func shellWords(argv []string) []string {
	const script = 3
	if len(argv) == script && argv[0] == "sh" && argv[1] == "-c" {
		return argv[2:]
	}
	return argv
}

func seconds(n float64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + "s"
}

func (i *sandboxImport) network(s sandbox.Spec, has workorder.NetworkPolicy, box *sandbox.BoxSpec) {
	if mode := string(cmp.Or(s.Network, sandbox.NetworkFull)); mode != string(has.Mode) {
		i.one("network.mode", "", mode)
		if mode != string(sandbox.NetworkRestricted) {
			i.set("network.allow", has.Allow, nil)
		}
	}
	if s.Network == sandbox.NetworkRestricted {
		i.set("network.allow", has.Allow, slices.Concat(box.Network.Allow, s.Allow))
	}
	if s.Box != nil {
		i.set("network.dns", has.DNS, box.Network.DNS)
	}
}

// limits compares limits; the defaults of a sandbox are not those of a task.
func (i *sandboxImport) limits(s sandbox.Spec) {
	has := i.of.Limits
	for _, row := range []struct {
		key           string
		has, now, def float64
		unit          string
	}{
		{"memory", float64(has.MemoryBytes), float64(s.Limits.MemoryBytes), sandbox.DefaultMemoryBytes, "b"},
		{"cpus", has.CPUs, s.Limits.CPUs, sandbox.DefaultCPUs, ""},
		{"pids", float64(has.PIDs), float64(s.Limits.PIDs), sandbox.DefaultPIDs, ""},
	} {
		unit, value := row.unit, row.now
		const mib = 1 << 20
		if unit == "b" && int64(value)%mib == 0 {
			unit, value = "m", value/mib
		}
		switch {
		case row.now == row.has, row.has == 0 && (row.now == row.def || row.now == 0):
		case row.now < 0:
			i.drop("limits.%s: the sandbox has no limit, and a project file cannot say so", row.key)
		default:
			i.one("limits."+row.key, "", strconv.FormatFloat(value, 'f', -1, 64)+unit)
		}
	}
}

// rest names what a project file cannot have.
func (i *sandboxImport) rest(s sandbox.Spec, box *sandbox.BoxSpec) {
	for _, m := range s.Mounts {
		if s.Worktree == "" || m.Target != sandbox.CloneDir {
			i.drop("mount %s: directories of this machine are a flag of up", m.Target)
		}
	}
	for _, row := range []struct{ what, value string }{
		{"user", s.User},
		{"workdir", strings.TrimPrefix(s.Dir, sandbox.CloneDir)},
		{"idle", seconds(s.IdleTimeout.Seconds())},
		{"ttl", seconds(s.TTL.Seconds())},
	} {
		if row.value != "" {
			i.drop("%s %s: it is a flag of up", row.what, row.value)
		}
	}
	for _, name := range box.SecretNames {
		if !slices.Contains(i.of.SecretNames(), name) {
			i.drop("secrets.%s: the sandbox has no reference to it: add one with: sandbox-agent project add secrets %[1]s=env://%[1]s", name)
		}
	}
	for _, r := range s.Repos {
		i.drop("repository %s: name several repositories with: up --repo %[1]s=%s", r.Name, text.Shell(r.Repo))
	}
	if s.Root != "" {
		i.drop("root %s: a project file has no key for it", s.Root)
	}
}

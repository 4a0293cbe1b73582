package presets

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/artifact"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Keys of the file.
const (
	presetsKey = "presets"
	oldKey     = "environments" // until the previous release
)

// sources are the keys of which an entry has one.
var sources = []string{"preset", "sandbox", "flake", "interpreter"}

// noSessions is the value of `session` that turns sessions of a preset off.
const noSessions = "none"

// keys are those of the file.
var keys = func() *yamlkeys.Schema {
	const maxNumber = 1_000_000_000 // as bytes and nanoseconds, megabytes and seconds do not overflow
	sessions := []string{noSessions}
	for _, d := range sandbox.Drivers() {
		sessions = append(sessions, string(d))
	}
	text := &yamlkeys.Schema{Kind: yamlkeys.Text}
	number, integer := &yamlkeys.Schema{Kind: yamlkeys.Number, Max: maxNumber}, &yamlkeys.Schema{Kind: yamlkeys.Integer, Max: maxNumber}
	list := &yamlkeys.Schema{Kind: yamlkeys.List, Item: text}
	entry := &yamlkeys.Schema{Kind: yamlkeys.Object, Check: checkSources, Keys: []yamlkeys.Key{
		{Name: "preset", Schema: text},
		{Name: "sandbox", Schema: text},
		{Name: "flake", Schema: text},
		{Name: "interpreter", Schema: &yamlkeys.Schema{
			Kind: yamlkeys.List, Item: text,
			Alt: &yamlkeys.Schema{Kind: yamlkeys.Text, Check: checkWords},
		}},
		{Name: "stdin_mode", Schema: &yamlkeys.Schema{Kind: yamlkeys.Text, Enum: []string{"arg", "pipe"}}},
		{Name: "backend", Schema: text},
		{Name: "image", Schema: text},
		{Name: "session", Schema: &yamlkeys.Schema{Kind: yamlkeys.Text, Enum: sessions}},
		{Name: "kernel", Schema: text},
		{Name: "project", Schema: text},
		{Name: "description", Schema: text},
		{Name: "network", Schema: &yamlkeys.Schema{Kind: yamlkeys.Text, Enum: []string{"none", "full", "restricted"}}},
		{Name: "allow", Schema: &yamlkeys.Schema{Kind: yamlkeys.List, Item: &yamlkeys.Schema{Kind: yamlkeys.Text, Check: checkRule}}},
		{Name: "timeout_seconds", Schema: number},
		{Name: "memory_mb", Schema: integer},
		{Name: "pids", Schema: integer},
		{Name: "cpus", Schema: number},
		{Name: "inherit_vars", Schema: list},
		{Name: "env", Schema: &yamlkeys.Schema{
			Kind: yamlkeys.Mapping, Names: workorder.ValidEnvName, NamesRule: "letters, digits and _, not starting with a digit",
			Item: &yamlkeys.Schema{Kind: yamlkeys.Text, AllowEmpty: true, Check: checkWritten},
		}},
	}}
	entries := &yamlkeys.Schema{Kind: yamlkeys.Mapping, Item: entry}
	return &yamlkeys.Schema{
		Kind: yamlkeys.Object,
		Keys: []yamlkeys.Key{{Name: presetsKey, Schema: entries}, {Name: oldKey, Schema: entries}},
	}
}()

func checkSources(d *yamlkeys.Decoder, v *yamlkeys.Value) {
	var has []string
	for i := 0; i < len(v.Node.Content); i += 2 { // also those with an invalid value, which is reported
		if name := v.Node.Content[i].Value; slices.Contains(sources, name) {
			has = append(has, name)
		}
	}
	for _, name := range sources { // and those of a merge key
		if v.Get(name) != nil && !slices.Contains(has, name) {
			has = append(has, name)
		}
	}
	slices.Sort(has)
	if len(has) != 1 && !slices.Equal(has, []string{"flake", "interpreter"}) {
		d.Report(v.Node, yamlkeys.CodeValue, "", "%s needs exactly one of %s, it has %d", v.Path, strings.Join(sources, ", "), len(has))
	}
}

func checkRule(d *yamlkeys.Decoder, v *yamlkeys.Value) {
	if _, err := workorder.ParseAllowRule(v.Text); err != nil {
		d.Report(v.Node, yamlkeys.CodeValue, "", "%v", err)
	}
}

func checkWords(d *yamlkeys.Decoder, v *yamlkeys.Value) {
	if _, err := artifact.Words(v.Text); err != nil {
		d.Report(v.Node, yamlkeys.CodeValue, "", "%v", err)
	}
}

func checkWritten(d *yamlkeys.Decoder, v *yamlkeys.Value) {
	if yamlkeys.IsNull(v.Node) {
		d.Report(v.Node, yamlkeys.CodeType, "write \"\" for an empty one", "%s is a text", v.Path)
	}
}

// readFile reads the presets of the file, none if it has a mistake. An unusable entry is a problem of its own: the other
// entries can be used.
func (l *loader) readFile(file string) error {
	b, err := yamlkeys.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !l.o.Named {
		return nil
	}
	if err != nil {
		return err
	}
	root, err := yamlkeys.Load(file, b, keys)
	if err != nil {
		return err
	}
	for _, f := range slices.Concat(root.Get(oldKey).Entries(), root.Get(presetsKey).Entries()) {
		e := entry{v: f.Value, getenv: l.o.Getenv}
		made, err := l.preset(&e, f.Name, file)
		if err == nil {
			err = made.Check()
		}
		if err != nil {
			l.problem(f.Name, fmt.Sprintf("%s:%d", file, f.Key.Line), err)
			continue
		}
		l.add(made)
	}
	return nil
}

// entry is a preset in the file: its source and the values that override those of the source.
type entry struct {
	v      *yamlkeys.Value
	getenv func(string) string
	unset  []string // variables of this program that the entry names and that are not set
}

func (e *entry) text(key string) string { return e.v.Get(key).Str() }

var reference = lazyregexp.New(`\$\$|\$\{[^}]*\}`)

// expand replaces ${NAME} with this program's variable, and $$ with $. A variable that is not set makes the entry unusable.
func (e *entry) expand(s string) string {
	return reference.ReplaceAllStringFunc(s, func(m string) string {
		if m == "$$" {
			return "$"
		}
		name := m[2 : len(m)-1]
		v := e.getenv(name)
		if v == "" {
			e.unset = append(e.unset, name)
		}
		return v
	})
}

func (l *loader) preset(e *entry, name, file string) (code.Preset, error) {
	from, image, project, descr := e.expand(e.text("sandbox")), e.expand(e.text("image")), e.expand(e.text("project")),
		e.expand(e.text("description"))
	var env []string
	for _, f := range e.v.Get("env").Entries() {
		env = append(env, f.Name+"="+e.expand(f.Text))
	}
	made := code.Preset{}
	if len(e.unset) > 0 {
		slices.Sort(e.unset)
		return made, fmt.Errorf("not set: %s", strings.Join(slices.Compact(e.unset), ", "))
	}
	preset, flake, backend, stdin, session := e.text("preset"), e.text("flake"), e.text("backend"), e.text("stdin_mode"), e.text("session")
	switch {
	case flake != "":
		return made, fmt.Errorf("flake %s: Nix references are not supported: build it, and set `sandbox` to its directory", flake)
	case preset != "":
		all := code.BuiltinPresets()
		i := slices.IndexFunc(all, func(p code.Preset) bool { return p.Name == preset })
		if i < 0 {
			return made, fmt.Errorf("unknown preset %s: use node, python or shell", preset)
		}
		made = all[i]
	case from != "":
		if strings.Contains(from, "#") || strings.HasPrefix(from, "github:") {
			return made, fmt.Errorf("sandbox %s: references are not supported: build it, and use its directory", from)
		}
		l.lookIn(absolute(from, file))
		var err error
		if made, err = artifact.Read(absolute(from, file)); err != nil {
			return made, fmt.Errorf("artifact %s: %w", from, err)
		}
	default:
		interpreter := e.v.Get("interpreter")
		made.Interpreter = interpreter.Strs()
		if interpreter.Str() != "" {
			made.Interpreter, _ = artifact.Words(interpreter.Str()) // checkWords has seen it
		}
		made.CodeArgument, made.Driver = code.TakesCodeArgument(made.Interpreter), code.InferDriver(made.Interpreter)
	}
	if made.Program != "" && (backend != "" || image != "" || stdin != "" || e.text("network") != "" || session != "") {
		return made, fmt.Errorf("artifact %s isolates itself: remove backend, image, stdin_mode, network and session", from)
	}
	number := func(key string) float64 { return e.v.Get(key).Number() }
	made.Name, made.Source = name, file
	made.Description = cmp.Or(descr, made.Description)
	made.Runtime, made.Image = cmp.Or(sandbox.Runtime(backend), made.Runtime), cmp.Or(image, made.Image)
	made.Timeout = cmp.Or(artifact.Seconds(number("timeout_seconds")), made.Timeout)
	made.MemoryBytes, made.CPUs, made.PIDs = cmp.Or(int64(number("memory_mb"))<<20, made.MemoryBytes), cmp.Or(number("cpus"), made.CPUs),
		cmp.Or(int64(number("pids")), made.PIDs)
	made.Env, made.Inherit = append(made.Env, env...), append(made.Inherit, e.v.Get("inherit_vars").Strs()...)
	made.Network, made.Allow = e.text("network") == "full", e.v.Get("allow").Strs()
	if (e.text("network") == string(sandbox.NetworkRestricted)) != (len(made.Allow) > 0) {
		return made, errors.New("network restricted and allow belong together: name both, or neither")
	}
	if stdin != "" {
		made.CodeArgument = stdin == "arg"
	}
	switch session {
	case "":
	case noSessions:
		made.Driver = ""
	default:
		made.Driver = sandbox.Driver(session)
	}
	made.Kernel = e.text("kernel")
	if project != "" {
		made.Project = absolute(project, file)
		if st, err := os.Stat(made.Project); err != nil {
			return made, fmt.Errorf("project: %w", err)
		} else if !st.IsDir() {
			return made, fmt.Errorf("project %s is not a directory", made.Project)
		}
	}
	return made, nil
}

// absolute resolves a path in the file: relative to the file's directory, or to the user's home if it begins with ~/.
func absolute(path, file string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(filepath.Dir(file), path)
}

// fileVersion identifies the version of a file that was read.
type fileVersion struct {
	there bool
	size  int64
	time  time.Time
	inode uint64 // a file that takes the place of another may be as large and as old
}

func look(path string) fileVersion {
	st, err := os.Stat(path)
	if err != nil {
		return fileVersion{}
	}
	s := fileVersion{there: true, size: st.Size(), time: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

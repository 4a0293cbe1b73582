package environments

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/host/artifact"
	"github.com/sandbox-agent/sandbox-agent/internal/host/keyed"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// entry is an environment as the file has it: what it is made of, and what takes the place of what that says.
type entry struct {
	preset, artifact, flake string
	interpreter             []string
	stdin, backend, image   string
	session, kernel         string
	project, descr, net     string
	timeout                 float64
	memory, pids            int64
	cpus                    float64
	env, inherit            []string
	unset                   []string // variables of this program that it names and that are not set
}

// sources are the keys of which an entry has one.
var sources = []string{"preset", "sandbox", "flake", "interpreter"}

// noSessions is the value of `session` that takes sessions from an environment.
const noSessions = "none"

// readFile reads the file of environments. err is all that is wrong with the file, of which then nothing holds; problems are of entries that cannot be used, which
// keep no others from being used.
func (l *loader) readFile(file string) error {
	b, err := keyed.Open(file)
	if errors.Is(err, fs.ErrNotExist) && !l.o.Named {
		return nil
	}
	if err != nil {
		return err
	}
	return keyed.Read(file, b, func(r *keyed.Reader, n *yaml.Node) {
		r.Mapping(n, "", keyed.Keys{"environments": func(n *yaml.Node) {
			r.Each(n, "environments.", func(key, value *yaml.Node) {
				name := key.Value
				var e entry
				e.read(r, key, value, l.o.Getenv)
				if !r.OK() { // none of it will hold
					return
				}
				if len(e.unset) > 0 {
					slices.Sort(e.unset)
					l.problem(name, fmt.Sprintf("%s:%d", file, key.Line), fmt.Errorf("not set: %s", strings.Join(slices.Compact(e.unset), ", ")))
					return
				}
				if e.artifact != "" {
					l.lookIn(absolute(e.artifact, file))
				}
				made, err := e.environment(name, file)
				if err == nil {
					err = made.Check()
				}
				if err != nil {
					l.problem(name, fmt.Sprintf("%s:%d", file, key.Line), err)
					return
				}
				l.add(made)
			})
		}})
	})
}

func (e *entry) read(r *keyed.Reader, key, n *yaml.Node, getenv func(string) string) {
	above := "environments." + key.Value + "."
	const least = 0.001
	keys := keyed.Keys{
		"preset": r.String(above+"preset", &e.preset), "sandbox": r.String(above+"sandbox", &e.artifact), "flake": r.String(above+"flake", &e.flake),
		"stdin_mode": r.String(above+"stdin_mode", &e.stdin), "backend": r.String(above+"backend", &e.backend), "image": r.String(above+"image", &e.image),
		"session": r.String(above+"session", &e.session), "kernel": r.String(above+"kernel", &e.kernel), "project": r.String(above+"project", &e.project), "description": r.String(above+"description", &e.descr),
		"network": r.String(above+"network", &e.net), "timeout_seconds": keyed.Number(r, above+"timeout_seconds", least, &e.timeout),
		"memory_mb": keyed.Number(r, above+"memory_mb", 1, &e.memory), "pids": keyed.Number(r, above+"pids", 1, &e.pids), "cpus": keyed.Number(r, above+"cpus", least, &e.cpus),
		"inherit_vars": r.Strings(above+"inherit_vars", &e.inherit),
		"interpreter": func(n *yaml.Node) {
			if n.Kind == yaml.SequenceNode {
				r.Strings(above+"interpreter", &e.interpreter)(n)
				return
			}
			var line string
			r.String(above+"interpreter", &line)(n)
			if words, err := artifact.Words(line); err == nil {
				e.interpreter = words
			} else if line != "" {
				r.Wrong(n, "%v", err)
			}
		},
		"env": func(n *yaml.Node) {
			r.Each(n, above+"env.", func(key, value *yaml.Node) {
				var v string
				if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
					r.Wrong(value, "%senv.%s is a text", above, key.Value)
					return
				}
				v = value.Value
				if !workorder.ValidEnvName(key.Value) {
					r.Wrong(key, "%q is no name of a variable", key.Value)
				}
				e.env = append(e.env, key.Value+"="+e.expand(v, getenv))
			})
		},
	}
	var has []string
	r.Mapping(n, above, keyedBy(keys, func(name string) {
		if slices.Contains(sources, name) {
			has = append(has, name)
		}
	}))
	slices.Sort(has)
	flaked := slices.Contains(has, "flake") && slices.Equal(has, []string{"flake", "interpreter"})
	if len(has) != 1 && !flaked {
		r.Wrong(key, "environments.%s: use one of %s, and not %d of them", key.Value, strings.Join(sources, ", "), len(has))
	}
	if !slices.Contains([]string{"", "none", "full"}, e.net) {
		r.Wrong(n, "%snetwork is none or full", above)
	}
	if !slices.Contains([]string{"", "arg", "pipe"}, e.stdin) {
		r.Wrong(n, "%sstdin_mode is arg or pipe", above)
	}
	if d := sandbox.Drivers(); e.session != "" && e.session != noSessions && !slices.Contains(d, sandbox.Driver(e.session)) {
		r.Wrong(n, "%ssession is %s or one of %v", above, noSessions, d)
	}
	for _, to := range []*string{&e.artifact, &e.image, &e.project, &e.descr} {
		*to = e.expand(*to, getenv)
	}
}

// keyedBy tells of each key that is read.
func keyedBy(keys keyed.Keys, tell func(name string)) keyed.Keys {
	all := keyed.Keys{}
	for name, read := range keys {
		all[name] = func(n *yaml.Node) {
			tell(name)
			read(n)
		}
	}
	return all
}

var reference = regexp.MustCompile(`\$\$|\$\{[^}]*\}`)

// expand puts variables of this program in place of ${NAME}, and $ in place of $$. One that is not set keeps the entry from being used.
func (e *entry) expand(s string, getenv func(string) string) string {
	return reference.ReplaceAllStringFunc(s, func(m string) string {
		if m == "$$" {
			return "$"
		}
		name := m[2 : len(m)-1]
		v := getenv(name)
		if v == "" {
			e.unset = append(e.unset, name)
		}
		return v
	})
}

func (e entry) environment(name, file string) (code.Environment, error) {
	made := code.Environment{}
	switch {
	case e.flake != "":
		return made, fmt.Errorf("flake %s: references of Nix are not resolved: build it, and name its folder with `sandbox`", e.flake)
	case e.preset != "":
		all := code.Presets()
		i := slices.IndexFunc(all, func(p code.Environment) bool { return p.Name == e.preset })
		if i < 0 {
			return made, fmt.Errorf("preset %s: there are node, python and shell", e.preset)
		}
		made = all[i]
	case e.artifact != "":
		if strings.Contains(e.artifact, "#") || strings.HasPrefix(e.artifact, "github:") {
			return made, fmt.Errorf("sandbox %s: references are not resolved: build it, and name its folder", e.artifact)
		}
		var err error
		if made, err = artifact.Read(absolute(e.artifact, file)); err != nil {
			return made, fmt.Errorf("artifact %s: %w", e.artifact, err)
		}
	default:
		made.Interpreter, made.Argument, made.Driver = e.interpreter, code.ArgumentOf(e.interpreter), code.DriverOf(e.interpreter)
	}
	if made.Program != "" && (e.backend != "" || e.image != "" || e.stdin != "" || e.net != "" || e.session != "") {
		return made, fmt.Errorf("artifact %s isolates by itself: backend, image, stdin_mode, network and session are not asked of it", e.artifact)
	}
	made.Name, made.Source = name, file
	made.Description = cmp.Or(e.descr, made.Description)
	made.Backend, made.Image = cmp.Or(sandbox.Kind(e.backend), made.Backend), cmp.Or(e.image, made.Image)
	made.Timeout = cmp.Or(artifact.Seconds(e.timeout), made.Timeout)
	made.MemoryBytes, made.CPUs, made.PIDs = cmp.Or(e.memory<<20, made.MemoryBytes), cmp.Or(e.cpus, made.CPUs), cmp.Or(e.pids, made.PIDs)
	made.Env, made.Inherit = append(made.Env, e.env...), append(made.Inherit, e.inherit...)
	made.Network = e.net == "full"
	if e.stdin != "" {
		made.Argument = e.stdin == "arg"
	}
	switch e.session {
	case "":
	case noSessions:
		made.Driver = ""
	default:
		made.Driver = sandbox.Driver(e.session)
	}
	made.Kernel = e.kernel
	if e.project != "" {
		made.Project = absolute(e.project, file)
		if st, err := os.Stat(made.Project); err != nil {
			return made, fmt.Errorf("project: %w", err)
		} else if !st.IsDir() {
			return made, fmt.Errorf("project %s is no folder", made.Project)
		}
	}
	return made, nil
}

// absolute is a path of the file: below its folder, or the user's home where it begins with ~/.
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

// seen is how a file was when it was read.
type seen struct {
	there bool
	size  int64
	time  time.Time
	inode uint64 // a file that takes the place of another may be as large and as old
}

func look(path string) seen {
	st, err := os.Stat(path)
	if err != nil {
		return seen{}
	}
	s := seen{there: true, size: st.Size(), time: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

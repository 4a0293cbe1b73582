// Package tools installs the tools that a project requires before any code of the repository runs.
package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Dir is the directory of the tools: TOOL/VERSION/bin, owned by root, and links to all programs in bin.
const Dir = "/opt/tools"

// lookTime bounds one query of a source: a registry's list of versions takes seconds.
const lookTime = time.Minute

// near is how many other versions of a source an error lists.
const near = 3

// Tools installs tools. Root runs it.
type Tools struct {
	// Dir is their installation directory.
	Dir string
	// Path is the PATH of root. It must not have directories that other users can write, since root runs programs from it.
	Path string
	// Commands is the PATH of the project's commands, to which the tools are prepended.
	Commands string
	// User runs programs to query their version: root never runs fetched programs. Nil means the current user.
	User *proc.Credential
	// Log opens the log of an Install, which closes it.
	Log func() (io.WriteCloser, error)

	table map[string]*tool // nil means this package's table
	log   io.Writer
	apt   *Apt
	mise  string // the program, once installed
}

type tool struct {
	name string
	// programs are the tool's programs; the first reports its version.
	programs []string
	// asks are the arguments that print the version; nil means --version.
	asks []string
	ways []way
}

type way interface {
	String() string
	// list returns the available versions.
	list(ctx context.Context, b *Tools, t *tool) ([]string, error)
	// fill installs the tool in dir, with its programs in dir/bin.
	fill(ctx context.Context, b *Tools, t *tool, version, dir string) error
}

// Install installs the tools, and returns the variables that all commands need. If some are unavailable it returns an
// *Error that names all of them, and the variables for the others.
func (b *Tools) Install(ctx context.Context, asked map[string]string) (env map[string]string, err error) {
	log, err := b.Log()
	if err != nil {
		return nil, fmt.Errorf("install tools: %w", err)
	}
	defer log.Close()
	b.log, b.apt = log, &Apt{Log: log, Env: b.environ()}
	if b.table == nil {
		b.table = table()
	}
	if err := b.begin(); err != nil {
		return nil, fmt.Errorf("install tools: %w", err)
	}
	defer os.RemoveAll(b.home())
	asked = b.plus(asked)
	failed := &Error{}
	env = map[string]string{"PATH": filepath.Join(b.Dir, "bin") + ":" + b.Commands}
	for _, name := range workorder.ToolNames() {
		want, wanted := asked[name]
		if !wanted {
			continue
		}
		miss := b.one(ctx, b.table[name], want)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if miss != nil {
			failed.Missing = append(failed.Missing, *miss)
			continue
		}
		b.variables(name, env)
		if name == "node" && asked["npm"] == "" {
			if miss := b.companion(ctx); miss != nil {
				failed.Missing = append(failed.Missing, *miss)
			}
		}
	}
	if len(failed.Missing) > 0 {
		return env, failed
	}
	return env, nil
}

// plus adds dependencies of tools: Maven and Gradle run on Java, which the image may lack.
func (b *Tools) plus(asked map[string]string) map[string]string {
	all := map[string]string{}
	for name, want := range asked {
		all[name] = want
		if name == "maven" || name == "gradle" {
			if all["java"] == "" && asked["java"] == "" {
				all["java"] = "*"
			}
		}
	}
	return all
}

func (b *Tools) one(ctx context.Context, t *tool, want string) *Missing {
	miss := &Missing{Tool: t.name, Asked: want}
	r, err := versionrange.Parse(want)
	if err != nil {
		miss.Sources = append(miss.Sources, SourceResult{Err: err})
		return miss
	}
	has := b.version(ctx, t, b.Path)
	if r.Has(has) {
		b.logf("%s %s: the image has %s", t.name, want, has)
		return nil
	}
	image := SourceResult{Way: "image"}
	if has != "" {
		image.Has = []string{has}
	}
	miss.Sources = append(miss.Sources, image)
	if kept := b.kept(ctx, t, r); kept != "" {
		if err := b.link(t, kept); err == nil {
			b.logf("%s %s: %s is there", t.name, want, kept)
			return nil
		}
	}
	for _, w := range t.ways {
		tried := b.try(ctx, t, r, w)
		if tried == nil || ctx.Err() != nil {
			return nil
		}
		b.logf("%s %s: %s", t.name, want, tried)
		miss.Sources = append(miss.Sources, *tried)
	}
	return miss
}

// try uses one source; nil means that the tool is installed.
func (b *Tools) try(ctx context.Context, t *tool, r versionrange.Range, w way) *SourceResult {
	tried := &SourceResult{Way: w.String()}
	look, cancel := context.WithTimeoutCause(ctx, lookTime, fmt.Errorf("it took longer than %s", lookTime))
	list, err := w.list(look, b, t)
	cancel()
	if err != nil {
		tried.Err = err
		return tried
	}
	newest := r.Newest(list)
	if newest == "" {
		tried.Has = r.Near(list, near)
		return tried
	}
	b.logf("%s %s: %s of %s", t.name, r, newest, w)
	if tried.Err = b.put(ctx, t, r, w, newest); tried.Err != nil {
		tried.Has = []string{newest}
		return tried
	}
	return nil
}

// put installs one version, in a temporary directory that it then renames.
func (b *Tools) put(ctx context.Context, t *tool, r versionrange.Range, w way, version string) error {
	if !dirName.MatchString(version) {
		return fmt.Errorf("%q is not a valid directory name", version)
	}
	dir, err := os.MkdirTemp(b.Dir, unfinished)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // all users run its programs
		return err
	}
	if err := w.fill(ctx, b, t, version, dir); err != nil {
		return err
	}
	if says := b.version(ctx, t, filepath.Join(dir, "bin")+":"+b.path()); !r.Has(says) {
		return fmt.Errorf("version %s does not run here, or reports another version: %q", version, says)
	}
	place := filepath.Join(b.Dir, t.name, version)
	if err := errors.Join(os.MkdirAll(filepath.Dir(place), 0o755), os.RemoveAll(place), os.Rename(dir, place)); err != nil {
		return err
	}
	return b.link(t, version)
}

// variables adds variables other than PATH that users of a tool need.
func (b *Tools) variables(name string, env map[string]string) {
	switch name {
	case "java":
		if program, err := filepath.EvalSymlinks(filepath.Join(b.Dir, "bin", "java")); err == nil {
			env["JAVA_HOME"] = filepath.Dir(filepath.Dir(program))
		}
	case "go":
		env["GOTOOLCHAIN"] = "local" // otherwise Go would fetch another version by itself
	}
}

// companion installs a compatible npm for a Node that is not the image's: the image's npm is for the image's Node.
func (b *Tools) companion(ctx context.Context) *Missing {
	if _, err := os.Lstat(filepath.Join(b.Dir, "bin", "node")); err != nil {
		return nil
	}
	node := b.version(ctx, b.table["node"], b.path())
	newest, err := npmFor(ctx, b, node)
	if err != nil {
		return &Missing{Tool: "npm", Asked: "for node " + node, Sources: []SourceResult{{Way: "npm", Err: err}}}
	}
	return b.one(ctx, b.table["npm"], newest)
}

// Trusted returns PATH without directories below others, and without relative ones.
func Trusted(path string, others ...string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(path, ":"), func(dir string) bool {
		return !filepath.IsAbs(dir) ||
			slices.ContainsFunc(others, func(o string) bool { return strings.HasPrefix(filepath.Clean(dir)+"/", o+"/") })
	}), ":")
}

// home returns the home directory of programs that root runs here; its content is temporary.
func (b *Tools) home() string { return filepath.Join(b.Dir, ".home") }

func (b *Tools) path() string { return filepath.Join(b.Dir, "bin") + ":" + b.Path }

func (b *Tools) logf(format string, a ...any) { fmt.Fprintf(b.log, format+"\n", a...) }

// table returns the sources of each tool, in the order of trying. The image and the content of Dir come first.
func table() map[string]*tool {
	all := map[string]*tool{}
	add := func(name string, programs, asks []string, ways ...way) {
		all[name] = &tool{name: name, programs: programs, asks: asks, ways: ways}
	}
	add("node", []string{"node"}, nil,
		npm{pkg: "node-linux-ARCH"},
		distribution{pkg: lazyregexp.New(`^nodejs$`), at: map[string]string{"node": "/usr/bin/node"}})
	add("npm", []string{"npm", "npx"}, nil, npm{pkg: "npm"})
	add("pnpm", []string{"pnpm", "pnpx"}, nil, npm{pkg: "pnpm"})
	add("yarn", []string{"yarn"}, nil, npm{pkg: "yarn", below: "2"}, npm{pkg: "@yarnpkg/cli-dist", since: "2"})
	add(
		"bun", []string{"bun", "bunx"}, nil, npm{pkg: "@oven/bun-linux-ARCH", files: map[string]string{"bun": "bin/bun", "bunx": "bin/bun"}},
		mise{"bun"},
	)
	add("deno", []string{"deno"}, nil, npm{pkg: "@deno/linux-ARCH-glibc", files: map[string]string{"deno": "deno"}}, mise{"deno"})
	add("go", []string{"go", "gofmt"}, []string{"version"},
		distribution{
			pkg: lazyregexp.New(`^golang-(1\.[0-9]+)-go$`),
			at:  map[string]string{"go": "/usr/lib/go-FIRST/bin/go", "gofmt": "/usr/lib/go-FIRST/bin/gofmt"},
		},
		golang{})
	add("python", []string{"python3", "python"}, nil,
		mise{"python"},
		distribution{
			pkg: lazyregexp.New(`^python(3\.[0-9]+)$`), with: []string{"pythonFIRST-venv", "pythonFIRST-dev"},
			at: map[string]string{"python": "/usr/bin/pythonFIRST", "python3": "/usr/bin/pythonFIRST", "pythonFIRST": "/usr/bin/pythonFIRST"},
		})
	add("uv", []string{"uv", "uvx"}, nil, pip{"uv"}, mise{"uv"})
	add("poetry", []string{"poetry"}, nil,
		pip{"poetry"}, mise{"poetry"},
		distribution{pkg: lazyregexp.New(`^python3-poetry$`), at: map[string]string{"poetry": "/usr/bin/poetry"}})
	add(
		"rust", []string{"rustc", "cargo"}, nil,
		mise{"rust"},
		distribution{
			pkg: lazyregexp.New(`^rustc$`), with: []string{"cargo"}, at: map[string]string{"rustc": "/usr/bin/rustc", "cargo": "/usr/bin/cargo"},
		},
	)
	add(
		"java", []string{"java", "javac"}, []string{"-version"},
		mise{"java"},
		distribution{
			pkg: lazyregexp.New(`^openjdk-([0-9]+)-jdk-headless$`), at: map[string]string{"*": "/usr/lib/jvm/java-FIRST-openjdk-ARCH/bin/*"},
		},
	)
	add("maven", []string{"mvn"}, nil,
		mise{"maven"},
		distribution{pkg: lazyregexp.New(`^maven$`), at: map[string]string{"mvn": "/usr/bin/mvn"}})
	add("gradle", []string{"gradle"}, nil,
		mise{"gradle"},
		distribution{pkg: lazyregexp.New(`^gradle$`), at: map[string]string{"gradle": "/usr/bin/gradle"}})
	add("ruby", []string{"ruby", "gem", "bundle"}, nil,
		mise{"ruby"},
		distribution{
			pkg: lazyregexp.New(`^ruby([0-9]\.[0-9]+)$`), with: []string{"rubyFIRST-dev", "ruby-bundler"},
			at: map[string]string{"ruby": "/usr/bin/rubyFIRST", "gem": "/usr/bin/gemFIRST", "bundle": "/usr/bin/bundle"},
		})
	add("php", []string{"php"}, nil,
		distribution{
			pkg: lazyregexp.New(`^php([0-9]\.[0-9]+)-cli$`), with: []string{"phpFIRST-xml", "phpFIRST-mbstring"},
			at: map[string]string{"php": "/usr/bin/phpFIRST"},
		})
	return all
}

// Error reports all unavailable tools.
type Error struct{ Missing []Missing }

// Missing is a tool that no source has in the requested version.
type Missing struct {
	Tool, Asked string
	Sources     []SourceResult
}

// SourceResult is the result of one source.
type SourceResult struct {
	Way string
	Has []string // the versions nearest to the requested one
	Err error    // why the source could not be used
}

func (e *Error) Error() string {
	var all []string
	for _, m := range e.Missing {
		all = append(all, m.String())
	}
	return strings.Join(all, "; ")
}

func (m Missing) String() string {
	var ways []string
	for _, t := range m.Sources {
		ways = append(ways, t.String())
	}
	return fmt.Sprintf("%s %s is unavailable (%s)", m.Tool, m.Asked, strings.Join(ways, "; "))
}

func (t SourceResult) String() string {
	what := "has none"
	switch has := strings.Join(t.Has, ", "); {
	case t.Err != nil && has != "":
		what = "has " + has + ", but " + t.Err.Error()
	case t.Err != nil:
		what = t.Err.Error()
	case has != "":
		what = "has " + has
	}
	if t.Way == "" {
		return what
	}
	return t.Way + ": " + what
}

// briefly bounds how much of a program's error message an error includes, in characters.
const briefly = 240

// brief shortens a program's error to its relevant line.
func brief(err error) error {
	failed, ok := errors.AsType[*proc.ExitError](err)
	if !ok {
		return err
	}
	var said []string
	for line := range strings.Lines(failed.Stderr) {
		line = strings.TrimSpace(line)
		for _, lead := range []string{"mise", "ERROR", "WARN", "ERROR:", "error:", "go:"} {
			line = strings.TrimSpace(strings.TrimPrefix(line, lead+" "))
		}
		if line == "" || strings.HasPrefix(line, "Version: ") || strings.HasPrefix(line, "Run with ") || strings.HasPrefix(line, "WARNING:") ||
			len(said) > 0 && said[len(said)-1] == line {
			continue
		}
		said = append(said, line)
	}
	all := text.Name(text.Words(strings.Join(said, ": ")), briefly)
	if all == "" {
		return err
	}
	return errors.New(all)
}

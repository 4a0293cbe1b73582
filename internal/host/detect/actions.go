package detect

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
)

// actionTools are actions that install a tool, and the input with its version.
var actionTools = map[string]struct{ tool, input string }{
	"actions/setup-node":     {"node", "node-version"},
	"actions/setup-go":       {"go", "go-version"},
	"actions/setup-python":   {"python", "python-version"},
	"actions/setup-java":     {"java", "java-version"},
	"pnpm/action-setup":      {"pnpm", "version"},
	"oven-sh/setup-bun":      {"bun", "bun-version"},
	"ruby/setup-ruby":        {"ruby", "ruby-version"},
	"shivammathur/setup-php": {"php", "php-version"},
	"graalvm/setup-graalvm":  {"java", "java-version"},
	"pdm-project/setup-pdm":  {"python", "python-version"},
	"astral-sh/setup-uv":     {"uv", "version"},
	"denoland/setup-deno":    {"deno", "deno-version"},
}

// composeActions start services of a compose file.
var composeActions = lazyregexp.New(`^(?:hoverkraft-tech|isbang)/compose-action$`)

// displayActions run a command with a display.
var displayActions = lazyregexp.New(`^(?:coactions/setup-xvfb|gabrielbb/xvfb-action)$`)

// actionPackages are actions that install packages of the distribution, and the input that lists them.
var actionPackages = map[string]struct{ usual, input string }{
	"arduino/setup-protoc":            {"protobuf-compiler", ""},
	"awalsh128/cache-apt-pkgs-action": {"", "packages"},
	"ilammy/setup-nasm":               {"nasm", ""},
	"ts-graphviz/setup-graphviz":      {"graphviz", ""},
	"federicocarboni/setup-ffmpeg":    {"ffmpeg", ""},
	"ludeeus/setup-shellcheck":        {"shellcheck", ""},
	"mfinelli/setup-shfmt":            {"shfmt", ""},
	"seanmiddleditch/gha-setup-ninja": {"ninja-build", ""},
	"lukka/get-cmake":                 {"cmake ninja-build", ""},
}

// installsOnly are arguments with which an action installs its program, and does not check.
var installsOnly = lazyregexp.New(`^(?:--?h(?:elp)?|--version|version)$`)

type actionCheck struct{ command, args, usual, install string }

// actionChecks are actions that check by themselves: the command, with the input that has its arguments, and how it is installed.
// An action without a command installs a program that setup has no short way to install.
var actionChecks = map[string]actionCheck{
	"astral-sh/ruff-action":              {"ruff", "args", "check", "pip install ruff=="},
	"chartboost/ruff-action":             {"ruff", "args", "check", "pip install ruff=="},
	"psf/black":                          {"black", "options", "--check .", "pip install black=="},
	"golangci/golangci-lint-action":      {"golangci-lint run", "args", "", golangci},
	"dominikh/staticcheck-action":        {"staticcheck", "", "./...", "honnef.co/go/tools/cmd/staticcheck"},
	"microsoft/playwright-github-action": {"npx playwright install --with-deps", "", "", ""},
	"pre-commit/action":                  {},
	"crate-ci/typos":                     {},
	"ludeeus/action-shellcheck":          {},
	"reviewdog/action-golangci-lint":     {},
	"actions-rs/clippy-check":            {},
	"super-linter/super-linter":          {},
	"jakebailey/pyright-action":          {},
}

const (
	golangci     = "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"
	biome        = "@biomejs/biome"
	biomeInstall = `npm install --global --prefix "$HOME/.local" ` + biome
)

// action takes the versions and checks of an action.
func (d githubActions) action(j *job, file string, st *workflowStep, rows []*scope, row *scope) {
	at := Position{File: file, Line: st.Uses.Line}
	if dir, local := strings.CutPrefix(strings.TrimPrefix(st.Uses.Value, "$"), "/"); local || strings.HasPrefix(dir, "./") {
		d.composite(j, file, path.Clean(dir), st, rows, row)
		return
	}
	uses, _, _ := strings.Cut(strings.ToLower(st.Uses.Value), "@")
	with := func(s *scope, name string) string {
		n := st.With[name]
		v, known, _ := s.fill(n.Value)
		if !known {
			return ""
		}
		return v
	}
	if d.aids(j, uses, at, func(input, usual string) string { return cmp.Or(with(row, input), usual) }) {
		return
	}
	if uses == "actions/checkout" {
		other := with(row, "repository")
		own := other == "" || strings.HasSuffix(strings.TrimSuffix(d.Remote, ".git"), "/"+other)
		j.elsewhere = j.elsewhere || !own && with(row, "path") == ""
		j.modules = j.modules || own && slices.Contains([]string{"true", "recursive"}, with(row, "submodules"))
		return
	}
	if known, ok := actionTools[uses]; ok {
		if known.tool == "php" {
			d.extensions(j, at, with(row, "extensions"))
		}
		version := st.With[known.input].Value
		if name := with(row, known.input+"-file"); version == "" && versionFile.MatchString(name) {
			if f := d.at(path.Clean(name)); f != nil {
				version, at = strings.TrimSpace(f.text), f.line(0)
			}
		}
		j.tool(at, known.tool, version, rows)
		return
	}
	if uses == "biomejs/setup-biome" {
		install := biomeInstall
		if v := with(row, "version"); plainNumber.MatchString(v) {
			install += "@" + v
		} else if d.manifest().depends(biome) { // the action takes the same version
			install = ""
		}
		d.programs = append(d.programs, biome)
		j.biome = &install
		return
	}
	check, ok := actionChecks[uses]
	if !ok || j.aside {
		why := reasonAction
		if ok {
			why = reasonAside
		}
		j.leave(file, st, why)
		return
	}
	c := step{command: command{
		text: strings.TrimSpace(check.command + " " + cmp.Or(with(row, check.args), check.usual)),
		dir:  cmp.Or(with(row, "working-directory"), "."), at: at,
	}}
	install, why := check.installs(with(row, "version"), with(row, "only-new-issues") == "true")
	switch {
	case why != "":
		j.leave(file, st, why)
		return
	case strings.HasPrefix(install, "pip "):
		j.commands = append(j.commands, step{command: command{text: install, dir: c.dir, at: at}})
	default:
		c.install = install
	}
	j.commands = append(j.commands, c)
}

// aids takes an action that brings what other steps need, and reports whether it is one.
func (d githubActions) aids(j *job, uses string, at Position, with func(input, usual string) string) bool {
	text, dir := "", "."
	apt, installs := actionPackages[uses]
	switch {
	case uses == "actions/download-artifact":
		j.fetches = true
		return true
	case installsOnly.MatchString(with(actionChecks[uses].args, "")), d.serveAction(j, uses, at, with):
		return true
	case installs:
		text = "apt-get install " + strings.Join(strings.Fields(cmp.Or(apt.usual, with(apt.input, ""))), " ")
	case composeActions.MatchString(uses) && with("services", "") != "":
		text = "docker compose"
		if f := with("compose-file", ""); f != "" {
			text += " -f " + strings.Join(strings.Fields(f), " -f ")
		}
		text += " up -d " + strings.Join(strings.Fields(with("services", "")), " ")
	case displayActions.MatchString(uses):
		text, dir = "xvfb-run "+with("run", ""), with("working-directory", ".")
	default:
		return false
	}
	j.commands = append(j.commands, step{command: command{text: text, dir: dir, at: at}})
	return true
}

// versionFile is a file with a version and nothing else.
var versionFile = lazyregexp.New(`(?:^|/)\.(?:nvmrc|[a-z]+-version)$`)

var goVersion = lazyregexp.New(`^v?([0-9]+(?:\.[0-9]+)*)$`)

// installs returns the command that installs an action's program, or why there is none. some says that only new findings count.
func (c actionCheck) installs(version string, some bool) (install, why string) {
	switch {
	case c.command == "", some:
		return "", "the sandbox does not have its program; a project file can install it under setup"
	case c.install == "":
		return "", ""
	case strings.HasPrefix(c.install, "pip "):
		if version = strings.TrimPrefix(version, "v"); plainNumber.MatchString(version) {
			return c.install + version, ""
		}
		return strings.TrimSuffix(c.install, "=="), ""
	}
	program, query := c.install, "latest"
	if m := goVersion.FindStringSubmatch(version); m != nil {
		query = m[1]
	}
	if program == golangci {
		switch {
		case query == "latest": // whose build takes minutes, and may not be what the configuration is for
			return "", "nothing says which version; a project file can install it under setup"
		case strings.HasPrefix(query, "1."):
			program = strings.Replace(program, "/v2/", "/", 1)
		}
		query = "v" + query
	}
	return `GOBIN="$HOME/.local/bin" go install ` + program + "@" + query, ""
}

// tool adds the versions of a tool that the rows of a job install.
func (j *job) tool(at Position, tool, input string, rows []*scope) {
	var all []string
	for _, s := range rows {
		filled, known, _ := s.fill(input)
		filled = filled[strings.LastIndex(filled, "\n")+1:] // of several, the last one is the default
		if v := strings.TrimSuffix(plainVersion(filled), ".x"); known && v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	if len(all) > 1 || len(all) == 0 && strings.Contains(input, "matrix.") {
		all = slices.DeleteFunc(all, func(v string) bool { return !plainNumber.MatchString(v) })
		j.several = append(j.several, tool)
	}
	if len(all) == 0 || slices.Contains([]string{"latest", "stable", "lts/*", "node", "current", "oldstable"}, all[0]) {
		return
	}
	slices.SortFunc(all, versionrange.Compare)
	if len(all) > 1 && tool == "go" { // a newer Go builds what an older one does
		all = []string{">=" + all[0]}
	}
	j.tools = append(j.tools, Tool{tool, strings.Join(all, " || "), at})
}

// extensions makes packages of the extensions of PHP that a job installs.
func (d githubActions) extensions(j *job, at Position, names string) {
	for name := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		if pkg := extensions[strings.ToLower(name)]; pkg != "" {
			j.commands = append(j.commands, step{command: command{text: "apt-get install " + pkg, dir: ".", at: at}})
		}
	}
}

// composite takes the steps of an action of the repository.
func (d githubActions) composite(j *job, file, dir string, st *workflowStep, rows []*scope, row *scope) {
	f := (&detector{d.source, dir}).first("action.yml", "action.yaml")
	var action struct {
		Inputs map[string]struct {
			Default string `yaml:"default"`
		} `yaml:"inputs"`
		Runs struct {
			Steps []workflowStep `yaml:"steps"`
		} `yaml:"runs"`
	}
	if f == nil || row.inputs != nil || !d.decode(f, &action) {
		j.leave(file, st, "there is no such action, or an action of the repository uses it")
		return
	}
	inner := *row
	inner.inputs = map[string]any{}
	for name, in := range action.Inputs {
		inner.inputs[name] = in.Default
	}
	for name, value := range st.With {
		if v, known, _ := row.fill(value.Value); known {
			inner.inputs[name] = v
		} else {
			inner.inputs[name] = unknown{}
		}
	}
	for i := range action.Runs.Steps {
		d.step(j, f.name, &workflow{}, &workflowJob{}, &action.Runs.Steps[i], rows, &inner)
	}
}

var plainNumber = lazyregexp.New(`^[0-9]+(?:\.[0-9x*]+)*$`)

// service takes a container beside a job.
func (d githubActions) service(j *job, file string, name, value *yaml.Node, row *scope) {
	at := Position{File: file, Line: name.Line}
	var in workflowService
	if value.Kind == yaml.ScalarNode {
		in.Image = value.Value
	} else {
		_ = value.Decode(&in)
	}
	image, known, _ := row.fill(in.Image)
	if !known {
		d.omit(at, "services."+name.Value, "its image depends on values that only a run of the pipeline has")
		return
	}
	s := Service{Name: name.Value, Image: image, At: at, Health: healthOptions(in.Options)}
	var written []any
	for _, p := range in.Ports {
		if port, known, _ := row.fill(p); known && portOf(containerPart(port)) != 0 {
			s.Ports = append(s.Ports, containerPart(port))
			if !strings.Contains(port, ":") { // the runner chooses one
				port += ":" + port
			}
			written = append(written, port)
		}
	}
	s.Ports = published(s.Ports, hostPorts(written))
	var others []Var
	vars := d.env(file, &in.Env, row, &others)
	for _, v := range others {
		d.omit(v.At, "services."+name.Value+".env."+v.Name, "%s", v.Value)
	}
	s.Env = d.variablesOf(name.Value, vars)
	if text, known, _ := row.fill(in.Command.Value); known && text != "" {
		s.Command = strings.Fields(text)
	}
	for _, n := range in.Command.Content {
		s.Command = append(s.Command, n.Value)
	}
	j.services = append(j.services, s)
}

var healthOption = lazyregexp.New(`--health-(cmd|interval|timeout|retries)[ =]+("[^"]*"|'[^']*'|\S+)`)

// healthOptions reads the options of `docker create` that say when a container is healthy.
func healthOptions(options string) (h Health) {
	for _, m := range healthOption.FindAllStringSubmatch(options, -1) {
		value := strings.Trim(m[2], `"'`)
		switch m[1] {
		case "cmd":
			h.Test = []string{"CMD-SHELL", value}
		case "interval":
			h.Interval = goSpan(value)
		case "timeout":
			h.Timeout = goSpan(value)
		case "retries":
			h.Retries = portOf(value)
		}
	}
	if len(h.Test) == 0 {
		return Health{}
	}
	return h
}

func goSpan(s string) string {
	if t, err := time.ParseDuration(s); err != nil || t <= 0 {
		return ""
	}
	return s
}

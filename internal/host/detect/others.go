package detect

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var deno = ecosystem{
	name: "deno", files: []string{"deno.json", "deno.jsonc"},
	rules: []rule{
		{words: "deno test", kind: kindTest, narrow: lazyregexp.New(`\s--(?:filter|doc)\b|\s[\w./-]+\.ts\b`)},
		{words: "deno lint", kind: kindLint, writes: lazyregexp.New(`\s--fix`)},
		{words: "deno fmt", kind: kindFormat, must: checkOnly},
		{words: "deno check", kind: kindTypecheck},
		{words: "deno install", kind: kindInstall},
		{words: "deno cache", kind: kindInstall},
	},
}

// denoModules asks for an install; otherwise Deno fetches what it runs.
var denoModules = lazyregexp.New(`"nodeModulesDir"\s*:\s*"manual"`)

var denoForm = lazyregexp.New(`^deno task ([\w:.-]+)$`)

func denoTask(d *detector, text string) (name, content string, ok bool) {
	m := denoForm.FindStringSubmatch(text)
	if m == nil {
		return "", "", false
	}
	content, ok = denoTasks(d)[m[1]]
	return m[1], content, ok
}

func readDeno(d *detector, p *part) {
	f := d.first("deno.json", "deno.jsonc")
	if f == nil {
		return
	}
	at := Position{File: f.name}
	d.hint(hintManifest, at, "deno", "*")
	if m := denoModules.FindStringIndex(f.text); m != nil {
		p.install(f.line(m[0]), "deno install")
	}
	if denoTasks(d)["test"] != "" {
		p.convention(f.find(keyLine("test")), "deno task test")
	} else if name := d.below(d.dir, 0, denoTests...); name != "" {
		p.convention(Position{File: name}, "deno test")
	}
}

// denoTests are the files that `deno test` runs.
var denoTests = strings.Fields(`test.ts test.tsx test.mts test.js test.jsx test.mjs *.test.ts *.test.tsx *.test.mts *.test.js *.test.jsx
	*.test.mjs *_test.ts *_test.tsx *_test.mts *_test.js *_test.jsx *_test.mjs`)

func denoTasks(d *detector) map[string]string {
	tasks := map[string]string{}
	f := d.first("deno.json", "deno.jsonc")
	if f == nil || deep(f.text) {
		return tasks
	}
	var doc struct{ Tasks map[string]any }
	if plain, err := hujson.Standardize([]byte(f.text)); err == nil {
		_ = json.Unmarshal(plain, &doc) // of a wrong form: as if it were absent
	}
	for name, task := range doc.Tasks {
		tasks[name], _ = task.(string)
		if long, ok := task.(map[string]any); ok {
			tasks[name], _ = long["command"].(string)
		}
	}
	return tasks
}

var elixir = ecosystem{
	name: "elixir", files: []string{"mix.exs"},
	rules: []rule{
		{words: "mix test", kind: kindTest, narrow: lazyregexp.New(`\s--(?:only|failed|stale)\b|\stest/`)},
		{words: "mix format", kind: kindFormat, must: lazyregexp.New(`\s--check-formatted`)},
		{words: "mix credo", kind: kindLint, needs: "credo"},
		{words: "mix compile", kind: kindBuild},
		{words: "mix deps.get", kind: kindInstall},
		{words: "mix local.hex", kind: kindInstall},
		{words: "mix local.rebar", kind: kindInstall},
		{words: "mix setup", kind: kindPrepare},
		{words: "mix test.setup", kind: kindPrepare},
		{words: "mix deps.compile", kind: kindNothing},
		{words: "mix deps.unlock", kind: kindNothing},
	},
}

func elixirHas(d *detector, name string) bool {
	f := d.open("mix.exs")
	return f != nil && strings.Contains(f.text, ":"+name)
}

func readElixir(d *detector, p *part) {
	at := d.whole("mix.exs")
	if d.open("mix.exs") == nil {
		return
	}
	d.need(at, "elixir", "erlang-dev", "erlang-xmerl")
	p.install(at, "mix local.hex --force --if-missing && mix local.rebar --force --if-missing", "mix deps.get")
	p.convention(at, "mix test")
}

var cmake = ecosystem{
	name: "cmake", files: []string{"CMakeLists.txt"},
	rules: []rule{
		{words: "ctest", kind: kindNothing},
		{words: "cmake", kind: kindNothing},
	},
}

func readCMake(d *detector, p *part) {
	f := d.open("CMakeLists.txt")
	if f == nil || p.d.dir != "." {
		return
	}
	if !lazyregexp.New(`(?im)^\s*(?:enable_testing|add_test|include\s*\(\s*CTest)\b|\benable_testing\s*\(`).MatchString(f.text) {
		d.omit(Position{File: f.name}, f.name, "it has no tests for ctest")
		return
	}
	if foreign := cmakeForeign.FindStringSubmatch(f.text); foreign != nil {
		d.omit(f.find(cmakeForeign), f.name, "it builds %s, for which the sandbox has no compiler", foreign[1])
		return
	}
	at := f.find(lazyregexp.New(`(?i)enable_testing|add_test|CTest`))
	d.need(at, "cmake", "g++")
	dir := "build"
	if ignored := d.open(".gitignore"); ignored == nil || !lazyregexp.New(`(?m)^/?build\*?/?$`).MatchString(ignored.text) {
		dir = "$HOME/.build$PWD" // the agent could commit one in the work tree; a copy of the tree needs one of its own
	}
	build := "cmake -S . -B " + dir + " && cmake --build " + dir + " --parallel"
	p.install(at, build)
	p.add(at, kindTest, build+" && ctest --test-dir "+dir+" --output-on-failure --no-tests=error")
}

// cmakeForeign is a project with another language than C and C++.
var cmakeForeign = lazyregexp.New(`(?is)\bproject\s*\([^)]*\s(Swift|CUDA|HIP|ISPC|Fortran|CSharp|OBJC|OBJCXX)\b[^)]*\)`)

var cmakeOption = lazyregexp.New(`\s-D ?["']?([A-Z]\w*(?::[A-Z]+)?=[\w./+-]+)["']?`)

// options gives the build the options of the first job that runs ctest: many projects build their tests only with one.
func (p *plan) options(t *part) {
	for _, j := range p.jobs {
		tests := slices.ContainsFunc(j.commands, func(c step) bool { return strings.HasPrefix(c.text, "ctest") })
		i := slices.IndexFunc(j.commands, func(c step) bool { return strings.HasPrefix(c.text, "cmake ") && cmakeOption.MatchString(c.text) })
		if j.aside || !tests || i < 0 {
			continue
		}
		p.use(j)
		p.chosen, p.prior[j] = append(p.chosen, j), i
		var options strings.Builder
		for _, m := range cmakeOption.FindAllStringSubmatch(j.commands[i].text, maxList) {
			if !strings.Contains(m[1], "COMPILER") && !strings.Contains(m[1], "TOOLCHAIN") {
				options.WriteString(" -D" + m[1])
			}
		}
		for i := range t.setup {
			t.setup[i].Text = strings.Replace(t.setup[i].Text, " && cmake --build", options.String()+" && cmake --build", 1)
		}
		for i := range t.checks {
			t.checks[i].command = strings.Replace(t.checks[i].command, " && cmake --build", options.String()+" && cmake --build", 1)
		}
		return
	}
}

// dotnet has no convention: its checks are those of the pipelines.
var dotnet = ecosystem{
	name: "dotnet", files: strings.Fields("*.sln *.slnx *.csproj *.fsproj"),
	rules: []rule{
		{words: "dotnet test", kind: kindTest, drop: dotnetAfter, narrow: lazyregexp.New(`\s--filter\b|\s\S*\.(?:cs|fs)proj\b`)},
		{words: "dotnet build", kind: kindBuild, drop: dotnetAfter},
		{words: "dotnet format", kind: kindFormat, must: lazyregexp.New(`\s--verify-no-changes\b`)},
		{words: "dotnet restore", kind: kindInstall},
	},
}

// dotnetAfter are arguments of a command that comes after others.
var dotnetAfter = lazyregexp.New(`\s--no-(?:build|restore)\b`)

// makefiles judge where no ecosystem does, or where a pipeline runs a target.
var makefiles = ecosystem{
	name: "make", files: makefileNames,
	rules: []rule{{words: "make", kind: kindUnknown, why: reasonUnknown}},
}

var makeForm = lazyregexp.New(`^make(?: -\w+)* ([A-Za-z0-9._-]+)$`)

func makeTask(d *detector, text string) (name, content string, ok bool) {
	m := makeForm.FindStringSubmatch(text)
	if m == nil {
		return "", "", false
	}
	content, ok = recipe(d, m[1], 0)
	return m[1], content, ok
}

func readMakefile(d *detector, p *part) {
	f := d.first(makefileNames...)
	others := slices.ContainsFunc(d.order, func(o *part) bool { return o != p && o.d.dir == d.dir && len(o.checks) > 0 })
	if f == nil || others {
		return
	}
	for _, goal := range []string{"test", "lint", "check"} {
		if at := f.find(goalLine(goal)); at.Line > 0 {
			p.convention(at, "make "+goal)
		}
	}
}

var makefileNames = []string{"GNUmakefile", "makefile", "Makefile"}

func goalLine(goal string) *lazyregexp.Pattern {
	return lazyregexp.New(`(?m)^` + regexp.QuoteMeta(goal) + `[ \t]*::?(?:[^=\n][^\n]*)?$`)
}

// recipe returns the commands of a target and of the targets that it needs.
func recipe(d *detector, goal string, depth int) (commands string, ok bool) {
	f := d.first(makefileNames...)
	if f == nil || depth > maxTaskDepth {
		return "", false
	}
	m := goalLine(goal).FindStringIndex(f.text)
	if m == nil {
		return "", false
	}
	_, needs, _ := strings.Cut(f.text[m[0]:m[1]], ":")
	for need := range strings.FieldsSeq(needs) {
		if memberForm.MatchString(need) && need != goal {
			inner, _ := recipe(d, need, depth+1)
			commands += inner
		}
	}
	for line := range strings.Lines(f.text[min(m[1]+1, len(f.text)):]) {
		if !strings.HasPrefix(line, "\t") && strings.TrimSpace(line) != "" {
			break
		}
		commands += strings.TrimPrefix(line, "\t")
	}
	return commands + "\n", true
}

const (
	whyImage  = "the sandbox does not have its tools: a project file can name an image that has, and the checks"
	whyPipe   = "this pipeline is not read"
	whyRunner = "the sandbox does not have its program: a project file can name checks"
)

// foreign are files of ecosystems and pipelines that are recognized and not read. test is the usual command of the tests.
var foreign = []struct {
	files     []string
	why, test string
	builds    bool // the root is a project of this kind
}{
	{[]string{"*.sln", "*.slnx", "*.csproj", "*.fsproj"}, whyImage, "dotnet test", true},
	{[]string{"*.cabal", "cabal.project"}, whyImage, "cabal test", true},
	{[]string{"stack.yaml"}, whyImage, "stack test", true},
	{[]string{"Package.swift"}, whyImage, "swift test", true},
	{[]string{"build.sbt"}, whyImage, "sbt test", true},
	{[]string{"project.clj"}, whyImage, "lein test", true},
	{[]string{"deps.edn"}, whyImage, "clojure -M:test", true},
	{[]string{"pubspec.yaml"}, whyImage, "dart test", true},
	{[]string{"build.zig"}, whyImage, "zig build test", true},
	{[]string{"dune-project"}, whyImage, "dune test", true},
	{[]string{"rebar.config"}, whyImage, "rebar3 eunit", true},
	{[]string{"gleam.toml"}, whyImage, "gleam test", true},
	{[]string{"Project.toml"}, whyImage, "", true},
	{[]string{"DESCRIPTION"}, whyImage, "", true},
	{[]string{"shard.yml"}, whyImage, "crystal spec", true},
	{[]string{"*.nimble"}, whyImage, "nimble test", true},
	{[]string{"foundry.toml"}, whyImage, "forge test", true},
	{[]string{"meson.build"}, whyImage, "meson test -C build", true},
	{[]string{"MODULE.bazel", "WORKSPACE", "WORKSPACE.bazel"}, whyImage, "bazel test //...", true},
	{[]string{"configure.ac", "configure.in", "configure"}, whyImage, "", true},
	{[]string{"Makefile.PL", "dist.ini", "cpanfile"}, whyImage, "prove -lr t", true},
	{[]string{"justfile", "Justfile", ".justfile"}, whyRunner, "", false},
	{[]string{"Taskfile.yml", "Taskfile.yaml"}, whyRunner, "", false},
	{[]string{"noxfile.py"}, "the tests run without nox, in the environment of setup", "", false},
	{[]string{".travis.yml", "azure-pipelines.yml", "Jenkinsfile", ".drone.yml"}, whyPipe, "", false},
	{[]string{"bitbucket-pipelines.yml", "appveyor.yml", ".cirrus.yml"}, whyPipe, "", false},
}

// buildsBelow names builds of directories below a root without checks: the build of a part may not be the project's.
func (d *detector) buildsBelow() {
	if len(d.Validate) > 0 || d.foreignBuild() || slices.ContainsFunc(d.order, func(p *part) bool { return p.d.dir == "." }) {
		return
	}
	for _, dir := range d.subdirs(".") {
		below := &detector{d.source, dir}
		names := below.names(".", cmake.files...)
		for _, u := range foreign {
			if u.builds {
				names = append(names, below.names(".", u.files...)...)
			}
		}
		if len(names) > 0 && !helper(dir) && !slices.ContainsFunc(d.order, func(p *part) bool { return p.d.dir == dir && p.eco != &cmake }) {
			d.omit(below.whole(names[0]), path.Join(dir, names[0]), "a build below the root is not read: a project file can name its checks")
		}
	}
}

// foreignBuild reports whether the root has a build that is not read: a directory below it is not the project then.
func (d *detector) foreignBuild() bool {
	for _, u := range foreign {
		if names := d.names(".", u.files...); u.builds && len(names) > 0 {
			return true
		}
	}
	return false
}

var lfsLine = lazyregexp.New(`(?m)^[^#\n]*\bfilter=lfs\b`)

// omitLFS says that objects of Git LFS are not fetched.
func omitLFS(d *detector) {
	if f := d.open(".gitattributes"); f != nil && lfsLine.MatchString(f.text) {
		d.omit(f.find(lfsLine), "Git LFS", "its objects are not fetched: the files are pointers")
	}
	if d.isDir(".circleci") && d.has(path.Join(".circleci", "config.yml")) {
		d.omit(Position{File: ".circleci/config.yml"}, ".circleci/config.yml", whyPipe)
	}
	checked := slices.ContainsFunc(d.Setup, func(i Item) bool { return strings.Contains(i.Text, "submodule") })
	if f := d.open(".gitmodules"); f != nil && !checked {
		d.omit(Position{File: f.name}, "submodules", "they are not checked out; under setup, a project file can: git submodule update --init")
	}
}

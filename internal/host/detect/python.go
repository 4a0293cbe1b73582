package detect

import (
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

var python = ecosystem{
	name: "python", tools: "uv poetry",
	files: strings.Fields("pyproject.toml setup.py setup.cfg requirements.txt requirements-dev.txt Pipfile tox.ini pytest.ini manage.py"),
	launchers: lazyregexp.New(`^(?:(?:uv|poetry|pdm|hatch|pipenv|rye) run` +
		`(?: --(?:group|extra|with|python|project) \S+| --?[\w-]+(?:=\S+)?)* )?` +
		`(?:python3? -m )?(?:coverage run (?:-\S+ )*-m )?(?:python3?(?: -m)? )?`),
	rules: []rule{
		{words: "pytest", kind: kindTest, narrow: pytestPart},
		{words: "py.test", kind: kindTest, narrow: pytestPart},
		{words: "unittest", kind: kindTest, narrow: lazyregexp.New(`\s[\w.]+\.[\w.]+`)},
		{words: "manage.py test", kind: kindTest, narrow: lazyregexp.New(`\s[\w.]+\.[\w.]+|--tag`)},
		{words: "manage.py migrate", kind: kindPrepare},
		{words: "manage.py collectstatic", kind: kindPrepare},
		{words: "runtests.py", kind: kindTest},
		{words: "run_tests.py", kind: kindTest},
		{words: "tests/runtests.py", kind: kindTest},
		{words: "setup.py test", kind: kindTest},
		{words: "ruff check", kind: kindLint, add: " --no-fix", needs: "ruff"},
		{words: "ruff format", kind: kindFormat, must: checkOnly, needs: "ruff"},
		{words: "flake8", kind: kindLint, needs: "flake8"},
		{words: "pylint", kind: kindLint, needs: "pylint"},
		{words: "black", kind: kindFormat, must: checkOnly, needs: "black"},
		{words: "isort", kind: kindFormat, must: checkOnly, needs: "isort"},
		{words: "mypy", kind: kindTypecheck, needs: "mypy", narrow: lazyregexp.New(`--install-types`)},
		{words: "pip install", kind: kindInstall},
		{words: "pip3 install", kind: kindInstall},
		{words: "uv pip install", kind: kindInstall},
		{words: "uv sync", kind: kindInstall},
		{words: "uv venv", kind: kindInstall},
		{words: "venv", kind: kindInstall},
		{words: "poetry install", kind: kindInstall},
		{words: "pipenv install", kind: kindInstall},
		{words: "pdm install", kind: kindInstall},
		{words: "pipx install", kind: kindNothing},
		{words: "pip", kind: kindNothing},
		{words: "tox", kind: kindOther, why: "the tests run without tox, in the environment of setup"},
		{words: "nox", kind: kindOther, why: "the tests run without nox, in the environment of setup"},
		{words: "hatch", kind: kindOther, why: "the tests run without hatch, in the environment of setup"},
	},
}

// runPython runs a program in the environment that setup makes.
func runPython(d *detector, _, command string) string {
	if strings.HasSuffix(strings.Fields(command)[0], ".py") {
		return d.venv() + "/bin/python " + command
	}
	return d.venv() + "/bin/python -m " + command
}

var (
	checkOnly  = lazyregexp.New(`\s(?:--check\S*|-c|--diff)(?:\s|$)`)
	pytestPart = lazyregexp.New(`\s-k[ =]?|\s--(?:deselect|lf)\b|\s-m[ =]?["']?(?:[^n"'\s]|n[^o]|no[^t])|::|` +
		`\s[\w./-]+\.py(?:\s|$)|\s(?:\./)?tests?/[\w./-]*\w`)

	// needsRust is a build of extensions that are written in Rust.
	needsRust    = lazyregexp.New(`(?m)^\s*(?:requires\s*=\s*\[.*)?["'](?:setuptools-rust|maturin)\b`)
	toxArguments = lazyregexp.New(`\{posargs(?::[^}]*)?\}`)
	pythonLine   = lazyregexp.New(`(?m)^requires-python\s*=\s*"([^"\n]+)"`)
	usesPytest   = lazyregexp.New(`(?i)\bpy\.?test\b`)
	usesUnittest = lazyregexp.New(`(?m)^(?:import|from) unittest\b`)
	projectTable = lazyregexp.New(`(?m)^\[(?:project|tool\.poetry)\]`)
	buildTable   = lazyregexp.New(`(?m)^\[build-system\]`)
	extras       = lazyregexp.New(`(?ms)^\[project\.optional-dependencies\]\n(.*?)(?:^\[|\z)`)
	extraNames   = lazyregexp.New(`\[([\w,.-]+)\]`)
	locksPytest  = lazyregexp.New(`(?m)^name = "pytest"`)
)

// venv is outside of the work tree, so that it can never be committed.
func (d *detector) venv() string {
	if d.dir == "." || !d.present(&python) && (&detector{d.source, "."}).present(&python) {
		return "$HOME/.venv"
	}
	return "$HOME/.venv-" + shortName(d.dir)
}

// requirementFiles list what a project and its tests need, as pip reads them.
var requirementFiles = []string{
	"requirements.txt", "requirements-dev.txt", "dev-requirements.txt", "requirements_dev.txt", "test-requirements.txt",
	"requirements-test.txt", "requirements/tests.txt", "requirements/test.txt", "tests/requirements.txt", "test/requirements.txt",
}

// pythonFiles are the files of a directory that say what a Python project needs.
type pythonFiles struct {
	*detector
	project, legacy *file
	lists           []*file
	all             string
}

func (d *detector) pythonFiles() *pythonFiles {
	p := &pythonFiles{detector: d, project: d.toml("pyproject.toml"), legacy: d.first("setup.py", "setup.cfg")}
	for _, n := range requirementFiles {
		if f := d.open(n); f != nil {
			p.lists = append(p.lists, f)
		}
	}
	for _, m := range contributed.FindAllStringSubmatch(d.guide(), maxLines) {
		f := d.open(m[1])
		if known := func(l *file) bool { return l == f }; f != nil && !helper(path.Dir(m[1])) && !slices.ContainsFunc(p.lists, known) {
			p.lists = append(p.lists, f)
		}
	}
	var texts []string
	for _, f := range append([]*file{p.project, p.legacy, d.open("tox.ini"), d.open("uv.lock"), d.open("poetry.lock")}, p.lists...) {
		if f != nil {
			texts = append(texts, f.text)
		}
	}
	p.all = strings.Join(texts, "\n")
	return p
}

var contributed = lazyregexp.New(`(?m)\bpip3? install (?:.* )?-r ?([\w./-]+\.txt)\b`)

// guide is the text that tells contributors what they need.
func (d *detector) guide() string {
	if f := d.first("CONTRIBUTING.md", "CONTRIBUTING.rst", ".github/CONTRIBUTING.md", "docs/CONTRIBUTING.md"); f != nil {
		return f.text
	}
	return ""
}

// pythonHas reports whether a list of requirements, a group, an extra or a pipeline names a program.
func pythonHas(d *detector, program string) bool {
	p := d.pythonFiles()
	listed := lazyregexp.New(`(?m)(?:^|["'\s])` + program + `(?:["'\s<>=~!;\[,]|$)`)
	lists := []string{d.pip}
	for _, f := range p.lists {
		lists = append(lists, f.text)
	}
	if p.project != nil {
		if d.open("poetry.lock") != nil { // Poetry installs all groups
			lists = append(lists, poetryTable.FindAllString(p.project.text, maxList)...)
		}
		if d.open("uv.lock") != nil { // uv installs all extras
			lists = append(lists, extras.FindStringSubmatch(p.project.text)...)
		}
	}
	if p.installable() {
		_, extras := p.withExtras(d.pip)
		lists = append(lists, extras)
	}
	_, groups := p.groups()
	_, tox := p.tox()
	return listed.MatchString(strings.Join(slices.Concat(lists, groups, tox), "\n"))
}

func readPython(d *detector, part *part) {
	p := d.pythonFiles()
	if part.broken = p.project == nil && d.has("pyproject.toml"); part.broken {
		return
	}
	if p.project != nil {
		if m := pythonLine.FindStringSubmatch(p.project.text); m != nil {
			d.hint(hintManifest, p.project.find(pythonLine), "python", m[1])
		}
	}
	part.late = func(jobs []*job) { p.setup(part, jobs) }
	if needsRust.MatchString(p.all) {
		d.need(d.manifestFile(), "cargo", "rustc")
	}
	at, commands := p.toxLines("testenv", "commands", 0)
	other := len(commands) > 0 && !usesPytest.MatchString(strings.Join(commands, "\n"))
	switch {
	case other && p.unittest(part, at, commands):
	case other:
		d.omit(at, "tox", "its commands cannot be read; a project file can name the tests")
	case d.has("manage.py") && !usesPytest.MatchString(p.all):
		part.convention(d.whole("manage.py"), "python manage.py test")
	case p.pytest():
		at := d.whole("tests")
		if f := d.first("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"); f != nil {
			at = f.find(usesPytest)
		}
		part.convention(at, "pytest")
	case d.has("runtests.py"):
		part.convention(d.whole("runtests.py"), "python runtests.py")
	case len(d.names("test", "*.py")) > 0:
		part.convention(d.whole("test"), "python -m unittest discover -s test")
	default:
		if f := d.open("test.py"); f != nil && usesUnittest.MatchString(f.text) {
			part.convention(f.find(usesUnittest), "python -m unittest test")
		}
	}
	if pythonHas(d, "ruff") {
		part.convention(d.whole("ruff"), "ruff check .")
	}
}

// unittest takes a command of tox that runs the tests by another program than pytest.
func (p *pythonFiles) unittest(part *part, at Position, commands []string) bool {
	for _, c := range commands {
		c = strings.TrimSpace(toxArguments.ReplaceAllString(strings.TrimPrefix(c, "- "), ""))
		if v := p.classify(c, 0); v.kind == kindTest && !strings.ContainsAny(c, "{}") {
			part.convention(at, c)
			return true
		}
	}
	return false
}

// pytest reports whether pytest runs the tests, by what is written of it and by where they are.
func (p *pythonFiles) pytest() bool {
	below := p.at(p.below(p.dir, 0, "test_*.py", "conftest.py"))
	imported := below != nil && usesPytest.MatchString(below.text)
	return imported || usesPytest.MatchString(p.all) || p.has("pytest.ini") || p.has("conftest.py") ||
		len(p.names("tests", "*.py")) > 0 || len(p.names(".", "test_*.py", "*_test.py")) > 0
}

// setup installs the project, what its tests need, and what the jobs install.
func (p *pythonFiles) setup(part *part, jobs []*job) {
	d, venv := p.detector, p.venv()
	if d.dir != "." && venv == (&detector{d.source, "."}).venv() {
		return // the environment of the root
	}
	if len(part.checks) == 0 && needsRust.MatchString(p.all) && d.has("Cargo.toml") {
		return // it packs the program
	}
	own, more := pipWords(d, jobs)
	needLibraries(d, &python, d.manifestFile(), p.all+"\n"+strings.Join(more, "\n"))
	if p.project == nil && p.legacy == nil && len(p.lists) == 0 && len(part.checks) == 0 && own == "" {
		return
	}
	switch {
	case p.project != nil && d.has("uv.lock"):
		at := d.whole("uv.lock")
		d.hint(hintManifest, at, "uv", "*")
		all := ""
		if !projectTable.MatchString(p.project.text) {
			all = " --all-packages"
		}
		part.install(at, "UV_PROJECT_ENVIRONMENT="+venv+" uv sync --frozen --all-extras"+all+testGroups(p.project))
		p.unlocked(part, "uv.lock", "uv pip install --quiet --python "+venv+"/bin/python ")
	case p.project != nil && d.has("poetry.lock"):
		at := d.whole("poetry.lock")
		d.hint(hintManifest, at, "poetry", "*")
		part.install(at, "python3 -m venv "+venv, "VIRTUAL_ENV="+venv+` PATH="`+venv+`/bin:$PATH" poetry install --no-interaction --all-extras`)
		p.unlocked(part, "poetry.lock", venv+"/bin/pip install --quiet ")
	default:
		p.pip(part, own, more)
	}
}

// unlocked installs what the tests need where the lock file lacks pytest.
func (p *pythonFiles) unlocked(part *part, lock, install string) {
	f := p.open(lock)
	if f == nil || locksPytest.MatchString(f.text) || !p.pytest() {
		return
	}
	at, needs := p.tox()
	if len(needs) == 0 {
		at = p.whole(lock)
	}
	if !usesPytest.MatchString(strings.Join(needs, "\n")) {
		needs = append(needs, "pytest")
	}
	part.install(at, install+text.Shell(needs...))
}

// pip sets a virtual environment up. own is the project with its extras as the pipelines install it, more is what else they install.
func (p *pythonFiles) pip(part *part, own string, more []string) {
	at := p.whole(".")
	if p.dir == "." {
		at = Position{File: "tests"}
	}
	for _, f := range append([]*file{p.project, p.legacy}, p.lists...) {
		if f != nil {
			at = Position{File: f.name}
			break
		}
	}
	install := p.venv() + "/bin/pip install --quiet "
	part.install(at, "python3 -m venv "+p.venv())
	texts := slices.Clone(more)
	for _, f := range p.lists {
		name := strings.TrimPrefix(f.name, p.dir+"/")
		part.install(Position{File: f.name}, install+"-r "+name)
		texts = append(texts, f.text)
	}
	if p.installable() {
		project, listed := p.withExtras(own)
		texts = append(texts, listed)
		part.install(at, install+"-e "+text.Shell(project))
	} else if packages := p.packages(); packages != "" {
		part.install(at, install+packages)
	}
	if at, needs := p.groups(); len(needs) > 0 {
		part.install(at, install+text.Shell(needs...))
		texts = append(texts, needs...)
	}
	if at, needs := p.tox(); len(needs) > 0 {
		part.install(at, install+text.Shell(needs...))
		texts = append(texts, needs...)
	}
	if len(more) > 0 {
		part.install(at, install+text.Shell(more...))
		for i, m := range more {
			if i > 0 && more[i-1] == "-r" {
				if f := p.open(m); f != nil {
					texts = append(texts, f.text)
				}
			}
		}
	}
	// A configuration that mentions pytest does not install it.
	tests := slices.ContainsFunc(part.checks, func(c found) bool { return strings.Contains(c.command, " pytest") })
	if (tests || p.called("pytest")) && !usesPytest.MatchString(strings.Join(texts, "\n")) {
		part.install(at, install+"pytest")
	}
}

// installable reports whether pip can install the project itself.
func (p *pythonFiles) installable() bool {
	return p.project != nil && buildTable.MatchString(p.project.text) && projectTable.MatchString(p.project.text) || p.has("setup.py")
}

// withExtras is the project as an argument of pip, with the extras that tests need, and the text of their lists.
func (p *pythonFiles) withExtras(own string) (project, listed string) {
	names := p.toxWords("extras")
	for _, m := range extraNames.FindAllStringSubmatch(own, -1) {
		names = append(names, strings.Split(m[1], ",")...)
	}
	lists := map[string]string{}
	if p.project != nil {
		lists = tomlLists(strings.Join(extras.FindStringSubmatch(p.project.text), ""))
	}
	for _, name := range sortedKeys(lists) {
		if testGroup.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for all, i := slices.Clone(names), 0; i < len(all) && i < maxList; i++ {
		listed += lists[all[i]] + "\n"
		for _, m := range extraNames.FindAllStringSubmatch(lists[all[i]], -1) { // an extra may name others
			all = append(all, strings.Split(m[1], ",")...)
		}
	}
	if len(names) > 0 {
		return ".[" + strings.Join(names, ",") + "]", listed
	}
	return ".", listed
}

// called reports whether a check of the draft runs a program of the directory's environment.
func (p *pythonFiles) called(program string) bool {
	return slices.ContainsFunc(p.Validate, func(c Check) bool { return strings.Contains(c.Command, p.venv()+"/bin/python -m "+program) })
}

// packages are arguments of pip for the packages below a root that is not one itself.
func (p *pythonFiles) packages() string {
	var args []string
	for _, dir := range p.manifestDirs() {
		f := p.at(path.Join(dir, "pyproject.toml"))
		if !strings.HasPrefix(dir, strings.TrimPrefix(p.dir+"/", "./")) || helper(dir) || f == nil || !projectTable.MatchString(f.text) {
			continue
		}
		p.member(dir)
		args = append(args, "-e", strings.TrimPrefix(dir, p.dir+"/"))
	}
	if p.project == nil || len(args) == 0 || len(args) > maxList {
		return ""
	}
	return text.Shell(args...)
}

var (
	toxSection  = lazyregexp.New(`(?m)^\[([^\]\n]+)\][ \t]*$`)
	requirement = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]+\])?(?:[ \t]*[<>=!~]=?[ \t]*[A-Za-z0-9.*+!-]+,?)*$`)
	listed      = lazyregexp.New(`^-r[ \t]*([A-Za-z0-9][A-Za-z0-9._/-]*)$`)
	toxRefer    = lazyregexp.New(`^\{\[([^\]\n]+)\](\w+)\}$`)
	poetryTable = lazyregexp.New(`(?m)^\[tool\.poetry\.(?:group\.[\w-]+\.)?(?:dev-)?dependencies\][ \t]*\n` +
		`(?:(?:[^\[\n].*)?\n)*`)
)

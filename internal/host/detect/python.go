package detect

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// venv lies outside of the work tree, so that it can never be committed.
const venv = "$HOME/.venv"

var (
	pythonLine   = regexp.MustCompile(`(?m)^requires-python\s*=\s*"([^"\n]+)"`)
	usesPytest   = regexp.MustCompile(`(?i)\bpytest\b`)
	usesUnittest = regexp.MustCompile(`(?m)^(?:import|from) unittest\b`)
	usesRuff     = regexp.MustCompile(`(?i)\bruff\b`)
	buildTable   = regexp.MustCompile(`(?m)^\[build-system\]`)
	testExtra    = regexp.MustCompile(`(?m)^(tests?|dev|testing)\s*=\s*\[`)
	extras       = regexp.MustCompile(`(?ms)^\[project\.optional-dependencies\]\n(.*?)(?:^\[|\z)`)
)

// requirementFiles are lists of what a project and its tests need, as pip reads them.
var requirementFiles = []string{
	"requirements.txt", "requirements-dev.txt", "dev-requirements.txt", "requirements_dev.txt", "test-requirements.txt",
	"requirements/tests.txt", "requirements/test.txt", "tests/requirements.txt", "test/requirements.txt",
}

// pythonFiles takes what the manifests of pip, uv and poetry say.
type pythonFiles struct{ *detector }

func (d pythonFiles) read() {
	project, lists := d.open("pyproject.toml"), []*file{}
	for _, n := range requirementFiles {
		if f := d.open(n); f != nil {
			lists = append(lists, f)
		}
	}
	legacy := d.first("setup.py", "setup.cfg")
	if project == nil && len(lists) == 0 && legacy == nil {
		return
	}
	var texts []string
	for _, f := range append([]*file{project, legacy, d.open("tox.ini"), d.open("uv.lock"), d.open("poetry.lock")}, lists...) {
		if f != nil {
			texts = append(texts, f.text)
		}
	}
	all := strings.Join(texts, "\n")
	if project != nil {
		if m := pythonLine.FindStringSubmatch(project.text); m != nil {
			d.hint(project.find(pythonLine), "python", m[1])
		}
	}
	run := venv + "/bin/python -m "
	switch {
	case project != nil && d.has("uv.lock"):
		d.hint(Position{File: "uv.lock"}, "uv", "*")
		d.setup(Position{File: "uv.lock"}, "UV_PROJECT_ENVIRONMENT="+venv+" uv sync --frozen --all-extras"+testGroups(project))
		d.unlocked("uv.lock", "uv pip install --quiet --python "+venv+"/bin/python ", all)
	case project != nil && d.has("poetry.lock"):
		d.hint(Position{File: "poetry.lock"}, "poetry", "*")
		d.setup(Position{File: "poetry.lock"}, "python3 -m venv "+venv,
			"VIRTUAL_ENV="+venv+` PATH="`+venv+`/bin:$PATH" poetry install --no-interaction --all-extras`)
		d.unlocked("poetry.lock", venv+"/bin/pip install --quiet ", all)
	default:
		d.pip(project, legacy, lists, all)
	}
	tests := Position{File: "tests"}
	switch {
	case d.pytest(all):
		if f := d.first("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"); f != nil {
			tests = f.find(usesPytest)
		}
		d.check(tests, "test", run+"pytest")
	case len(d.names("test", ".py")) > 0:
		d.check(Position{File: "test"}, "test", run+"unittest discover -s test")
	default:
		if f := d.open("test.py"); f != nil && usesUnittest.MatchString(f.text) {
			d.check(f.find(usesUnittest), "test", run+"unittest test")
		}
	}
	if usesRuff.MatchString(all) {
		d.check(Position{File: "ruff"}, "lint", run+"ruff check .")
	}
}

// pytest reports whether pytest runs the tests, by what is written of it (all) and by where they lie.
func (d pythonFiles) pytest(all string) bool {
	return usesPytest.MatchString(all) || d.has("pytest.ini") || d.has("conftest.py") || len(d.names("tests", ".py")) > 0 ||
		slices.ContainsFunc(d.names(".", ".py"), func(n string) bool { return strings.HasPrefix(n, "test_") || strings.HasSuffix(n, "_test.py") })
}

// locksPytest is how a lock file of uv or Poetry has pytest.
var locksPytest = regexp.MustCompile(`(?m)^name = "pytest"`)

// unlocked sets up what the tests need where the lock file has no pytest, by what tox.ini says.
func (d pythonFiles) unlocked(lock, install, all string) {
	f := d.open(lock)
	if f == nil || locksPytest.MatchString(f.text) || !d.pytest(all) {
		return
	}
	at, needs := d.tox()
	if len(needs) == 0 {
		at = Position{File: lock}
	}
	if !usesPytest.MatchString(strings.Join(needs, "\n")) {
		needs = append(needs, "pytest")
	}
	d.setup(at, install+text.Shell(needs...))
}

// testGroups are arguments of uv for the groups that tests need; dev comes unasked.
func testGroups(project *file) (args string) {
	table := groupTable.FindStringSubmatch(project.text)
	if table == nil {
		return ""
	}
	for _, m := range testGroup.FindAllStringSubmatch(table[1], -1) {
		if m[1] != "dev" {
			args += " --group " + m[1]
		}
	}
	return args
}

var (
	ofPython = regexp.MustCompile(`^(cd .* && )?(?:(?:uv|poetry|pdm|hatch) run )?(?:python3? -m )?(pytest|unittest)\b`)
	ofMake   = regexp.MustCompile(`^(cd .* && )?make `)
)

// activate lets checks that pipelines and texts name run in the virtual environment that setup makes: they were written for one that is
// active, or that uv or Poetry finds by itself.
func (d pythonFiles) activate() {
	if !slices.ContainsFunc(d.Setup, func(i Item) bool { return strings.Contains(i.Text, venv) }) {
		return
	}
	for _, checks := range [][]Check{d.Validate, d.Suggested} {
		for i, c := range checks {
			c := ofPython.ReplaceAllString(c.Command, "${1}$"+venv+"/bin/python -m ${2}")
			checks[i].Command = ofMake.ReplaceAllString(c, `${1}PATH="$`+venv+`/bin:$$PATH" make `)
		}
	}
}

// pip sets a virtual environment up.
func (d pythonFiles) pip(project, legacy *file, lists []*file, all string) {
	at := Position{}
	for _, f := range append([]*file{project, legacy}, lists...) {
		if f != nil {
			at = Position{File: f.name}
			break
		}
	}
	d.setup(at, "python3 -m venv "+venv)
	for _, f := range lists {
		d.setup(Position{File: f.name}, venv+"/bin/pip install --quiet -r "+f.name)
	}
	texts := make([]string, 0, len(lists)+1)
	for _, f := range lists {
		texts = append(texts, f.text)
	}
	if project != nil && buildTable.MatchString(project.text) || legacy != nil && legacy.name == "setup.py" {
		extra := ""
		if project != nil {
			if m := extras.FindStringSubmatch(project.text); m != nil {
				var names []string
				for _, e := range testExtra.FindAllStringSubmatch(m[1], -1) {
					names = append(names, e[1])
				}
				if len(names) > 0 {
					extra = "[" + strings.Join(names, ",") + "]"
					texts = append(texts, m[1])
				}
			}
		}
		d.setup(at, venv+"/bin/pip install --quiet -e '."+extra+"'")
	}
	if at, needs := groups(project); len(needs) > 0 {
		d.setup(at, venv+"/bin/pip install --quiet "+text.Shell(needs...))
		texts = append(texts, needs...)
	}
	if at, needs := d.tox(); len(needs) > 0 {
		d.setup(at, venv+"/bin/pip install --quiet "+text.Shell(needs...))
		texts = append(texts, needs...)
	}
	// Words of pytest in a configuration bring no pytest.
	if d.pytest(all) && !usesPytest.MatchString(strings.Join(texts, "\n")) {
		d.setup(at, venv+"/bin/pip install --quiet pytest")
	}
}

var (
	toxTests    = regexp.MustCompile(`(?ms)^\[testenv\][ \t]*\n(.*?)(?:^\[|\z)`)
	toxNeeds    = regexp.MustCompile(`(?m)^deps[ \t]*=[ \t]*(.*(?:\n(?:[ \t]+.*|[ \t]*#.*|[ \t]*$))*)`)
	requirement = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]+\])?(?:[ \t]*[<>=!~]=?[ \t]*[A-Za-z0-9.*+!-]+,?)*$`)
	listed      = regexp.MustCompile(`^-r[ \t]*([A-Za-z0-9][A-Za-z0-9._/-]*)$`)
)

var (
	groupTable = regexp.MustCompile(`(?ms)^\[dependency-groups\][ \t]*\n(.*?)(?:^\[|\z)`)
	testGroup  = regexp.MustCompile(`(?ms)^(tests?|dev|testing)\s*=\s*\[(.*?)\][ \t]*(?:#[^\n]*)?$`)
	inTable    = regexp.MustCompile(`\{[^}]*\}`)
	tomlText   = regexp.MustCompile(`"([^"\n]+)"|'([^'\n]+)'`)
)

// groups is what the tests need beside the project, as arguments of pip, by the groups of pyproject.toml (PEP 735): pip reads them itself
// since 25.1 only.
func groups(project *file) (at Position, needs []string) {
	if project == nil {
		return at, nil
	}
	table := groupTable.FindStringSubmatchIndex(project.text)
	if table == nil {
		return at, nil
	}
	for _, g := range testGroup.FindAllStringSubmatch(project.text[table[2]:table[3]], -1) {
		for _, m := range tomlText.FindAllStringSubmatch(inTable.ReplaceAllString(g[2], ""), -1) {
			if n := strings.TrimSpace(m[1] + m[2]); requirement.MatchString(n) && !slices.Contains(needs, n) {
				needs = append(needs, n)
			}
		}
	}
	return project.at(table[0]), needs
}

// tox is what the tests need beside the project, as arguments of pip, by the environment of tox.ini that all others start from. Lines with
// conditions and variables are for other environments than ours.
func (d pythonFiles) tox() (at Position, needs []string) {
	f := d.open("tox.ini")
	if f == nil {
		return at, nil
	}
	section := toxTests.FindStringSubmatchIndex(f.text)
	if section == nil {
		return at, nil
	}
	text := f.text[section[2]:section[3]]
	m := toxNeeds.FindStringSubmatchIndex(text)
	if m == nil {
		return at, nil
	}
	for line := range strings.Lines(text[m[2]:m[3]]) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if l := listed.FindStringSubmatch(line); l != nil {
			if !slices.Contains(requirementFiles, l[1]) && d.has(l[1]) {
				needs = append(needs, "-r", l[1])
			}
			continue
		}
		if requirement.MatchString(line) {
			needs = append(needs, strings.Join(strings.Fields(line), ""))
		}
	}
	return f.at(section[2] + m[0]), needs
}

package detect

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var (
	groupTable  = lazyregexp.New(`(?ms)^\[dependency-groups\][ \t]*\n(.*?)(?:^\[|\z)`)
	tomlList    = lazyregexp.New(`(?ms)^["']?([\w-]+)["']?\s*=\s*\[(.*?)\][ \t]*(?:#[^\n]*)?$`)
	tomlComment = lazyregexp.New(`(?m)(?:^|\s)#.*$`)
	includes    = lazyregexp.New(`\{\s*include-group\s*=\s*["']([\w-]+)["']\s*\}`)
	tomlText    = lazyregexp.New(`"([^"\n]+)"|'([^'\n]+)'`)
)

// hatchTable is an environment of tests in hatch.toml.
var hatchTable = lazyregexp.New(`(?ms)^\[envs\.(?:default|tests?|dev|hatch-test)\][ \t]*\n(.*?)(?:^\[|\z)`)

type needTable struct{ table, keys *lazyregexp.Pattern }

// needTables are the tables of pyproject.toml that list what tests need, and the keys of their lists.
var needTables = []needTable{
	{groupTable, testGroup},
	{lazyregexp.New(`(?ms)^\[tool\.pdm\.dev-dependencies\][ \t]*\n(.*?)(?:^\[|\z)`), lazyregexp.New(``)},
	{
		lazyregexp.New(`(?ms)^\[tool\.hatch\.envs\.(?:default|tests?|dev|hatch-test)\][ \t]*\n(.*?)(?:^\[|\z)`),
		lazyregexp.New(`^(?:extra-)?dependencies$`),
	},
}

// testGroup are the dependency groups that tests need.
var testGroup = lazyregexp.New(`^(?:tests?|dev|testing)$`)

// groups are the requirements of the lists that tests need: dependency groups (PEP 735), which pip reads itself only since 25.1, and
// those of PDM and Hatch. The extras of a project that pip cannot install are lists as well.
func (p *pythonFiles) groups() (at Position, needs []string) {
	project, tables := p.project, needTables
	if project == nil {
		return at, nil
	}
	if f := p.open("hatch.toml"); f != nil {
		for _, m := range tableBodies(hatchTable, f.text) {
			lists := tomlLists(f.text[m[0]:m[1]])
			at = f.line(m[0] - 1)
			needs = append(needs, slices.Concat(requirements(lists, "dependencies", 0), requirements(lists, "extra-dependencies", 0))...)
		}
	}
	if p.hatched { // what its environment has by itself
		needs = append(needs, "coverage[toml]", "pytest", "pytest-mock", "pytest-rerunfailures", "pytest-xdist[psutil]")
	}
	if !p.installable() {
		tables = append(slices.Clone(tables), needTable{extras, testGroup})
	}
	for _, of := range tables {
		for _, table := range tableBodies(of.table, project.text) {
			if at.Line == 0 {
				at = project.line(table[0] - 1)
			}
			lists := tomlLists(project.text[table[0]:table[1]])
			for _, name := range sortedKeys(lists) {
				if of.keys.MatchString(name) {
					needs = append(needs, requirements(lists, name, 0)...)
				}
			}
		}
	}
	slices.Sort(needs)
	return at, slices.Compact(needs)
}

// tableBodies are the contents of the tables that an expression matches. The next table may begin where one ends.
func tableBodies(re *lazyregexp.Pattern, text string) (all [][2]int) {
	for from := 0; len(all) < maxList; {
		m := re.FindStringSubmatchIndex(text[from:])
		if m == nil {
			return all
		}
		all = append(all, [2]int{from + m[2], from + m[3]})
		from += m[3]
	}
	return all
}

// tomlLists are the lists of a table by their keys, without comments.
func tomlLists(table string) map[string]string {
	lists := map[string]string{}
	for _, m := range tomlList.FindAllStringSubmatch(table, maxList) {
		lists[m[1]] = tomlComment.ReplaceAllString(m[2], "")
	}
	return lists
}

// requirements are those of a list, and of the lists that it includes.
func requirements(lists map[string]string, name string, depth int) (all []string) {
	for _, m := range includes.FindAllStringSubmatch(lists[name], maxList) {
		if depth < maxTaskDepth {
			all = append(all, requirements(lists, m[1], depth+1)...)
		}
	}
	for _, m := range tomlText.FindAllStringSubmatch(includes.ReplaceAllString(lists[name], ""), -1) {
		n := strings.TrimSpace(m[1] + m[2])
		if plain, _, _ := strings.Cut(n, ";"); requirement.MatchString(strings.TrimSpace(plain)) {
			all = append(all, n)
		}
	}
	return all
}

// testGroups are arguments of uv for the groups that tests need; it installs dev by itself.
func testGroups(project *file) (args string) {
	table := groupTable.FindStringSubmatch(project.text)
	if table == nil {
		return ""
	}
	for _, m := range tomlList.FindAllStringSubmatch(table[1], -1) {
		if testGroup.MatchString(m[1]) && m[1] != "dev" {
			args += " --group " + m[1]
		}
	}
	return args
}

// pipCommand is a command that installs packages, as pipelines write it.
var pipCommand = lazyregexp.New(`^(?:python3? -m |uv )?pip3? install\s+(.*)$`)

// valued are options of pip whose value is the next word.
var valued = lazyregexp.New(`^(?:-[cfirt]|--(?:group|constraint|requirement|(?:extra-)?index-url|find-links|python(?:-version)?|` +
	`target|prefix|root|platform|upgrade-strategy|progress-bar|no-binary|only-binary|trusted-host|cache-dir|log|proxy|timeout|retries))$`)

// pipTools are packages that pipelines install to install, build or publish.
var pipTools = lazyregexp.New(`^` + among(`pip setuptools wheel tox\S* nox\S* build twine codecov coveralls poetry uv hatch pdm pipenv
	virtualenv pre-commit`) + `(?:[<>=~!].*)?$`)

// packageOf is the name in a requirement.
func packageOf(requirement string) string {
	name, _, _ := strings.Cut(lazyregexp.New(`[<>=~!\[]`).ReplaceAllString(requirement, " "), " ")
	return name
}

// again matches requirements of the same package.
func again(w string) func(string) bool {
	return func(m string) bool { return packageOf(m) == packageOf(w) }
}

// pipWords are what the jobs install into the environment of a directory: the project with its extras, and other arguments.
func pipWords(d *detector, jobs []*job) (own string, more []string) {
	known := func(name string) bool { return slices.Contains(requirementFiles, name) }
	for _, j := range jobs {
		for _, c := range j.commands {
			m := pipCommand.FindStringSubmatch(c.text)
			if m == nil || c.dir != d.dir || shellOnly.MatchString(inQuotes.ReplaceAllString(c.text, "")) {
				continue
			}
			words := strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(m[1]))
			for i := 0; i < len(words); i++ {
				w := words[i]
				switch {
				case w == "-r" && i+1 < len(words):
					if i++; !known(words[i]) && d.has(words[i]) && !slices.Contains(more, words[i]) {
						more = append(more, "-r", words[i])
					}
				case valued.MatchString(w):
					i++
				case strings.HasPrefix(w, "."):
					own = max(own, w)
				case strings.HasPrefix(w, "-"), pipTools.MatchString(w), slices.ContainsFunc(more, again(w)):
				case requirement.MatchString(w):
					more = append(more, w)
				}
			}
		}
	}
	return own, more
}

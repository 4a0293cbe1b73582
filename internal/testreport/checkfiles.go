package testreport

import (
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// Commands are the commands of a project, by name.
type Commands struct {
	Checks map[string]string
	Setup  map[string]string // run before the checks
}

// checkFiles are files that decide what checks run: recipes, and settings of test runners, linters and package managers.
var checkFiles = []*lazyregexp.Pattern{
	re(`(?:^|/)(?:[Mm]akefile|GNUmakefile|\.?[jJ]ustfile|Taskfile\.ya?ml|Rakefile)$|\.mk$`),
	re(`(?:^|/)(?:\.npmrc|\.yarnrc(?:\.yml)?|pnpm-workspace\.yaml|bunfig\.toml)$`),
	re(`(?:^|/)(?:\.?pytest\.ini|tox\.ini|noxfile\.py|\.coveragerc|\.flake8|\.?mypy\.ini|\.?pylintrc|\.?ruff\.toml)$`),
	re(`(?:^|/)(?:jest[\w.-]*\.(?:config|setup)|jest\.\w+|setupTests|jest-setup|setup-jest)[\w.-]*\.\w+$`),
	re(`(?:^|/)(?:vitest[\w.-]*|vite\.config|playwright[\w.-]*\.config|cypress(?:\.config)?|karma\.conf|ava\.config)\.\w+$`),
	re(`(?:^|/)(?:\.mocharc[\w.]*|mocha\.opts|\.nycrc[\w.]*|\.c8rc[\w.]*|\.taprc|tsconfig[\w.-]*\.json|biome\.jsonc?)$`),
	re(`(?:^|/)(?:\.eslintrc[\w.]*|\.eslintignore|eslint\.config\.\w+|\.prettierrc[\w.]*|\.prettierignore|prettier\.config\.\w+)$`),
	re(`(?:^|/)(?:\.golangci\.(?:ya?ml|toml|json)|\.cargo/config(?:\.toml)?|nextest\.toml|clippy\.toml|\.pre-commit-config\.yaml)$`),
	re(`(?:^|/)(?:\.mvn/(?:maven|jvm)\.config|\.rspec|\.rubocop(?:_todo)?\.yml|[^/]+\.runsettings)$`),
	re(`(?:^|/)(?:phpunit[\w.]*\.(?:xml|dist)|Pest\.php|phpstan[\w.-]*\.neon(?:\.dist)?|psalm[\w.-]*\.xml)$`),
}

var (
	// jsonManifests and sectionManifests also list dependencies: only the keys and sections below decide what checks run.
	jsonManifests    = re(`(?:^|/)(?:package|deno|composer)\.json$`)
	sectionManifests = re(`(?:^|/)(?:pyproject\.toml|setup\.cfg|Cargo\.toml)$`)

	scriptKeys    = []string{"scripts", "tasks"}
	settingKeys   = []string{"jest", "vitest", "mocha", "ava", "nyc", "c8", "xo", "tap", "eslintConfig", "eslintIgnore"}
	checkSections = re(`^\[+(?:tool[.:])?(?:pytest|tox|ruff|flake8|mypy|pylint|coverage|profile\.test|test\b|(?:workspace\.)?lints)`)
	// newScript matches scripts that package managers run by themselves.
	newScript = re(`^(?:pre|post|test$)`)

	// checkNames matches names of programs that check others.
	checkNames = re(`(?i)(?:^|[/_.-])(?:e2e|(?:tests?|specs?|checks?|lint|verify|validate|expect|assert|smoke)[a-z]*)(?:[/_.-]|$)` +
		`|(?:^|/)(?:ci|\.ci|scripts?|hack)/`)
)

// decidesChecks returns which part of a changed file decides what checks run; "" for none.
func (c *change) decidesChecks(f *fileChange) (string, error) {
	is := func(names *lazyregexp.Pattern) bool {
		return names.MatchString(f.oldPath) || names.MatchString(f.newPath)
	}
	switch {
	case slices.ContainsFunc(checkFiles, is):
		return "it can decide what checks run", nil
	case !is(jsonManifests) && !is(sectionManifests):
		return "", nil
	}
	was, err := c.text(f.oldID)
	if err != nil {
		return "", err
	}
	now, err := c.text(f.newID)
	if err != nil {
		return "", err
	}
	var parts []string
	if is(jsonManifests) {
		parts = changedKeys(was, now)
	} else if checkSettings(was) != checkSettings(now) {
		parts = []string{"the settings of tests and linters"}
	}
	if len(parts) == 0 {
		return "", nil
	}
	return "it can decide what checks run: " + strings.Join(parts, ", "), nil
}

// changedKeys returns base's scripts and the settings of test runners that differ between two JSON documents.
func changedKeys(was, now string) (keys []string) {
	var a, b map[string]any
	_ = json.Unmarshal([]byte(was), &a) // an invalid document has no keys
	_ = json.Unmarshal([]byte(now), &b)
	for _, k := range scriptKeys {
		old, _ := a[k].(map[string]any)
		all, _ := b[k].(map[string]any)
		all = maps.Clone(all)
		for name := range all {
			if _, ok := old[name]; !ok && !newScript.MatchString(name) {
				delete(all, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(union(old, all))) {
			if !reflect.DeepEqual(old[name], all[name]) {
				keys = append(keys, k+"."+name)
			}
		}
	}
	for _, k := range settingKeys {
		if !reflect.DeepEqual(a[k], b[k]) {
			keys = append(keys, k)
		}
	}
	return keys
}

func union(a, b map[string]any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// checkSettings returns the sections of an INI or TOML file that belong to test runners and linters, without comments and indents.
func checkSettings(text string) string {
	var out strings.Builder
	in := false
	for line := range strings.Lines(text) {
		l := strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.Contains(l, "]") {
			in = checkSections.MatchString(l)
		}
		if in && l != "" && !strings.HasPrefix(l, "#") {
			out.WriteString(l + "\n")
		}
	}
	return out.String()
}

// namedBy returns the name of a command that has a file of base among its words, and whether it is a check. Test files
// are listed as such. Source files count if they are programs that check others; of setup's files only programs count.
func (c Commands) namedBy(p string) string {
	if p == "" || ofTests(p) {
		return ""
	}
	checks := isProgram(p) && checkNames.MatchString(p)
	for _, n := range slices.Sorted(maps.Keys(c.Checks)) {
		if (checks || !isProgram(p)) && names(c.Checks[n], p) {
			return n
		}
	}
	for _, n := range slices.Sorted(maps.Keys(c.Setup)) {
		if (checks || strings.HasSuffix(p, "sh")) && names(c.Setup[n], p) {
			return n
		}
	}
	return ""
}

// names reports whether a shell command has a path among its words, relative to the directory that it changes to.
func names(command, p string) bool {
	dir, last := "", ""
	for w := range strings.FieldsFuncSeq(command, func(r rune) bool { return strings.ContainsRune(" \t\r\n;&|()<>=`'\"", r) }) {
		if last == "cd" {
			dir = path.Join(dir, w)
		} else if path.Join(dir, w) == p {
			return true
		}
		last = w
	}
	return false
}

package testreport

import (
	"encoding/json"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// runnerConfig says what a test runner or linter reads beside what its command names.
type runnerConfig struct {
	command *pattern.Pattern // a command that runs it
	files   *pattern.Pattern // its own files: any change counts
	// shared are files that hold other things too, telling the lines of them that
	// count, sections the heads of the sections that do.
	shared, telling *pattern.Pattern
	sections        *pattern.Pattern
	keys            []string // of package.json
}

var packageManagers = re(`\b(?:np[mx]|pnp[mx]|yarn|yarnpkg|bunx?)\b`)

var pythonShared = re(`(?:^|/)(?:pyproject\.toml|setup\.cfg)$`)

var runnerConfigs = []runnerConfig{
	{
		command: re(`\b(?:pytest|py\.test|tox|nox)\b`), files: re(`(?:^|/)(?:\.?pytest\.ini|tox\.ini|noxfile\.py)$`),
		shared: pythonShared, sections: re(`^\[tool[.:](?:pytest|tox)`),
	},
	// These settings decide how and where package managers run scripts. A file may name a key by its escapes.
	{
		command: packageManagers, shared: re(`(?:^|/)\.npmrc$`),
		telling: re(`script-shell|ignore-scripts|node-options|if-present|shell-emulator|\bshell\b|pre-post-scripts|use-node-version|onload-script|userconfig|globalconfig|^\W?(?:include-)?workspaces?\b|\\[ux]`),
	},
	{
		command: re(`\b(?:yarn|yarnpkg)\b`), shared: re(`(?:^|/)\.yarnrc(?:\.yml)?$`),
		telling: re(`yarnPath|yarn-path|plugins|injectEnvironmentFiles|[iI]gnorePath|enableScripts|script-shell|ignore-scripts|\.c?js\b|\.env|^\W?--|\\[ux]`),
	},
	{
		command: re(`\bpnp[mx]\b`), shared: re(`(?:^|/)pnpm-workspace\.yaml$`),
		telling: re(`scriptShell|shellEmulator|nodeOptions|ignoreScripts|enablePrePostScripts|useNodeVersion|nodeVersion|\\[ux]`),
	},
	{command: re(`\bbunx?\b`), shared: re(`(?:^|/)bunfig\.toml$`), telling: re(`preload|shell|\bbun\b|define|\benv\b|test|\broot\b|\.[jt]s\b|\\[uU]`)},
	{command: re(`\bjest\b|react-scripts test`), files: re(`(?:^|/)(?:jest[\w.-]*\.(?:config|setup)|jest\.\w+|setupTests|jest-setup|setup-jest)[\w.-]*\.\w+$`), keys: []string{"jest"}},
	{
		command: re(`\bvitest\b`), files: re(`(?:^|/)vitest[\w.-]*\.\w+$`), keys: []string{"vitest"},
		shared: re(`(?:^|/)vite\.config\.\w+$`), telling: re(`\b(?:test|include|exclude|setupFiles|passWithNoTests|retry|allowOnly|dangerouslyIgnore\w*|testNamePattern|bail)\b`),
	},
	{command: re(`\bmocha\b`), files: re(`(?:^|/)(?:\.mocharc[\w.]*|mocha\.opts)$`), keys: []string{"mocha"}},
	{command: re(`\b(?:ava|nyc|c8|xo|tap)\b`), files: re(`(?:^|/)(?:ava\.config\.\w+|\.nycrc[\w.]*|\.c8rc[\w.]*|\.taprc)$`), keys: []string{"ava", "nyc", "c8", "xo", "tap"}},
	{command: re(`\bplaywright\b`), files: re(`(?:^|/)playwright[\w.-]*\.config\.\w+$`)},
	{command: re(`\bcypress\b`), files: re(`(?:^|/)cypress(?:\.config)?\.\w+$`)},
	{command: re(`\bkarma\b|\bng test\b`), files: re(`(?:^|/)karma\.conf\.\w+$`)},
	{command: re(`\beslint\b`), files: re(`(?:^|/)(?:\.eslintrc[\w.]*|\.eslintignore|eslint\.config\.\w+)$`), keys: []string{"eslintConfig", "eslintIgnore"}},
	{command: re(`\bprettier\b`), files: re(`(?:^|/)(?:\.prettierrc[\w.]*|\.prettierignore|prettier\.config\.\w+)$`)},
	{command: re(`\bbiome\b`), files: re(`(?:^|/)biome\.jsonc?$`)},
	{command: re(`\b(?:tsc|vue-tsc)\b`), shared: re(`(?:^|/)tsconfig[\w.-]*\.json$`), telling: re(`strict|noImplicit|noUnused|noEmit|skipLibCheck|exclude|include|noUnchecked|checkJs`)},
	{command: re(`\bruff\b`), files: re(`(?:^|/)\.?ruff\.toml$`), shared: pythonShared, sections: re(`^\[tool\.ruff`)},
	{command: re(`\bflake8\b`), files: re(`(?:^|/)\.flake8$`), shared: re(`(?:^|/)(?:setup\.cfg|tox\.ini)$`), sections: re(`^\[flake8`)},
	{command: re(`\bmypy\b`), files: re(`(?:^|/)\.?mypy\.ini$`), shared: pythonShared, sections: re(`^\[(?:tool\.)?mypy`)},
	{command: re(`\bpylint\b`), files: re(`(?:^|/)\.?pylintrc$`), shared: pythonShared, sections: re(`^\[tool\.pylint`)},
	{command: re(`\bcoverage\b|--cov\b`), files: re(`(?:^|/)\.coveragerc$`), shared: pythonShared, sections: re(`^\[(?:tool\.)?coverage`)},
	{command: re(`\bgolangci-lint`), files: re(`(?:^|/)\.golangci\.(?:ya?ml|toml|json)$`)},
	{
		command: re(`\bcargo\b`), files: re(`(?:^|/)(?:\.cargo/config(?:\.toml)?|nextest\.toml|clippy\.toml)$`),
		shared: re(`(?:^|/)Cargo\.toml$`), telling: re(`^(?:test|harness|autotests|doctest)\s*=|^\[profile\.test|^\[(?:workspace\.)?lints`),
	},
	{
		command: re(`\bmvnw?\b`), files: re(`(?:^|/)\.mvn/(?:maven\.config|jvm\.config)$`),
		shared: re(`(?:^|/)pom\.xml$`), telling: re(`(?i)skip|<excludes?>|<includes?>|testFailureIgnore|surefire|failsafe|<groups>|excludedGroups|rerunFailing`),
	},
	{
		command: re(`\bgradlew?\b`), shared: re(`(?:^|/)(?:[\w-]+\.gradle(?:\.kts)?|gradle\.properties)$`),
		telling: re(`(?i)ignoreFailures|exclude|enabled\s*=\s*false|onlyIf|excludeTags|includeTags|failOnNo|\bfilter\b|maxParallelForks|\bskip`),
	},
	{
		command: re(`\brspec\b`), files: re(`(?:^|/)\.rspec$`),
		shared: re(`(?:^|/)(?:spec|rails)_helper\.rb$`), telling: re(`filter_run|exclude|skip|focus|pending|abort|exit`),
	},
	{command: re(`\brake\b`), files: re(`(?:^|/)Rakefile$`)},
	{command: re(`\brubocop\b`), files: re(`(?:^|/)\.rubocop(?:_todo)?\.yml$`)},
	{command: re(`\b(?:phpunit|pest|artisan test|composer)\b`), files: re(`(?:^|/)(?:phpunit[\w.]*\.(?:xml|dist)|phpunit\.xml\.dist|Pest\.php)$`)},
	{command: re(`\b(?:phpstan|psalm)\b`), files: re(`(?:^|/)(?:phpstan[\w.-]*\.neon(?:\.dist)?|psalm[\w.-]*\.xml)$`)},
	{
		command: re(`\bdotnet\b`), files: re(`\.runsettings$`),
		shared: re(`(?:\.csproj|(?:^|/)Directory\.Build\.(?:props|targets))$`), telling: re(`IsTestProject|Compile Remove|VSTest|RunSettings|TreatWarningsAsErrors|NoWarn`),
	},
	{command: re(`\bpre-commit\b`), files: re(`(?:^|/)\.pre-commit-config\.yaml$`)},
}

// configured flags changes of what the runner in a command reads.
func (e *editedChecks) configured(command, dir string) {
	for _, rc := range runnerConfigs {
		if !rc.command.MatchString(command) {
			continue
		}
		for _, f := range e.c.files {
			p := f.newPath
			if p == "" {
				p = f.oldPath
			}
			if !strings.HasPrefix(p, dir) && strings.Contains(p, "/") || f.oldID == f.newID && f.oldPath == f.newPath {
				continue
			}
			if at := rc.changed(f, p); at != "" {
				e.flag(p, firstChange(f.oldText, f.newText), "check %q reads it: %s", e.check, at)
			}
		}
	}
}

var (
	saying = re(`\w{4}`)                 // and not only brackets or an "end"
	remark = re(`^(?:#|//|<!--|/?\*|;)`) // a line of comment
)

// changed says what changed of a runner's configuration in a file, "" for nothing.
func (rc runnerConfig) changed(f *fileChange, p string) string {
	removed, added := changedLines(f.oldText, f.newText)
	lines := append(added, removed...)
	switch {
	case f.newPath != "" && f.newID == "" && (rc.files != nil && rc.files.MatchString(p) || rc.shared != nil && rc.shared.MatchString(p)):
		return "it is no file of its own, what it leads to is not compared"
	case rc.files != nil && (rc.files.MatchString(f.oldPath) || rc.files.MatchString(f.newPath)):
		for _, l := range lines {
			if saying.MatchString(l) && !remark.MatchString(l) {
				return l
			}
		}
	case rc.keys != nil && (p == "package.json" || strings.HasSuffix(p, "/package.json")):
		for _, k := range rc.keys {
			if was, is := packageKey(f.oldText, k), packageKey(f.newText, k); was != is {
				return k + " in package.json"
			}
		}
	case rc.shared == nil || !rc.shared.MatchString(p):
	case rc.sections != nil:
		was, is := sections(f.oldText, rc.sections), sections(f.newText, rc.sections)
		if was != is {
			removed, added := changedLines(was, is)
			return append(append(added, removed...), "order of lines")[0]
		}
	default:
		for _, l := range lines {
			if rc.telling.MatchString(l) && !remark.MatchString(l) {
				return l
			}
		}
	}
	return ""
}

// sections is the part of an INI or TOML file whose heads match.
func sections(text string, heads *pattern.Pattern) string {
	var out strings.Builder
	in := false
	for line := range strings.Lines(text) {
		l := squeeze(line)
		if strings.HasPrefix(l, "[") && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") && strings.Contains(l, "]") {
			in = heads.MatchString(l)
		}
		if in && l != "" && !strings.HasPrefix(l, "#") {
			out.WriteString(l + "\n")
		}
	}
	return out.String()
}

// packageKey is one key of a package.json as it is written, without blanks.
func packageKey(text, key string) string {
	var doc map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &doc) != nil {
		return ""
	}
	return squeeze(string(doc[key]))
}

// packageKeys are the strings below a key of a package.json.
func packageKeys(text, key string) map[string]string {
	var doc map[string]json.RawMessage
	var raw map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &doc) != nil || json.Unmarshal(doc[key], &raw) != nil {
		return nil
	}
	out := map[string]string{}
	for k, v := range raw {
		var s string
		if json.Unmarshal(v, &s) == nil {
			out[k] = s
		}
	}
	return out
}

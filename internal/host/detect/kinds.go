package detect

import (
	"regexp"
	"strings"
)

// kinds are commands that judge, by what they begin with. A command that this table does not know is not taken: it may publish.
var kinds = []struct {
	re   *regexp.Regexp
	kind string
	need string // a file of the repository without which the command means nothing
}{
	{regexp.MustCompile(`^go test\b`), "test", "go.mod"},
	{regexp.MustCompile(`^go vet\b`), "vet", "go.mod"},
	{regexp.MustCompile(`^go build\b`), "build", "go.mod"},
	{regexp.MustCompile(`^cargo (?:nextest|test)\b`), "test", "Cargo.toml"},
	{regexp.MustCompile(`^cargo (?:build|check)\b`), "build", "Cargo.toml"},
	{regexp.MustCompile(`^(?:python3? -m )?pytest\b`), "test", ""},
	{regexp.MustCompile(`^(?:uv run|poetry run|pdm run|hatch run) (?:python -m )?pytest\b`), "test", "pyproject.toml"},
	{regexp.MustCompile(`^python3? -m unittest\b`), "test", ""},
	{regexp.MustCompile(`^(?:\./)?mvnw?\b.*\b(?:test|verify)\b`), "test", "pom.xml"},
	{regexp.MustCompile(`^(?:\./)?gradlew? .*\b(?:test|check|build)\b`), "test", ""},
	{regexp.MustCompile(`^bundle exec (?:rspec|rake(?: (?:test|spec))?)\s*$`), "test", "Gemfile"},
	{regexp.MustCompile(`^bundle exec rubocop\b`), "lint", "Gemfile"},
	{regexp.MustCompile(`^(?:\./)?vendor/bin/(?:phpunit|pest)\b`), "test", "composer.json"},
	{regexp.MustCompile(`^composer (?:run )?test\b`), "test", "composer.json"},
}

var (
	script    = regexp.MustCompile(`^(?:npm|pnpm|yarn|bun)(?: run)? ([A-Za-z0-9:_-]+)(?:\s+--?(?:[A-Za-z]|\s).*)?$`)
	makeGoal  = regexp.MustCompile(`^make ([A-Za-z0-9_-]+)$`)
	judges    = regexp.MustCompile(`^(?:test|tests|unit|lint|typecheck|type-check|types|check|build|ci|verify)(?:$|[:_-])`)
	forbidden = regexp.MustCompile("[|;&<>`$\\\\]") // more than one plain command
)

// kind is the name of the check that a command is; empty means none that is known.
func (d *detector) kind(command string) string {
	if forbidden.MatchString(command) {
		return ""
	}
	for _, k := range kinds {
		if k.re.MatchString(command) && (k.need == "" || d.has(k.need)) {
			return k.kind
		}
	}
	if m := script.FindStringSubmatch(command); m != nil && judges.MatchString(m[1]) && d.manifest().Scripts[m[1]] != "" {
		return checkName(m[1])
	}
	if m := makeGoal.FindStringSubmatch(command); m != nil && judges.MatchString(m[1]) && d.goals()[m[1]] != (Position{}) {
		return checkName(m[1])
	}
	return ""
}

// checkName is a script's name as that of a check.
func checkName(script string) string {
	name := strings.Trim(unfit.ReplaceAllString(script, "-"), "-._")
	if name == "type-check" || name == "types" {
		return "typecheck"
	}
	const longest = 63 // of a check's name
	return name[:min(len(name), longest)]
}

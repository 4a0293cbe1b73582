package detect

import (
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var (
	// idle are commands that show something, or end with 0 whatever they find.
	idle = lazyregexp.New(`\s--(?:help|help-msg|print-config|list-msgs|show-files|show-settings|showConfig|listFilesOnly|noCheck|` +
		`env-info|exit-zero|(?:issues|failure)-exit-code[= ]0|fail-under[= ]0(?:\.0*)?)(?:[=\s]|$)|` +
		`\s(?:--version|-h)$|(?:-Dmaven\.test\.failure\.ignore(?:=true)?["']?|--fail-never|\bmvnw? .*-fn)(?:\s|$)|` +
		`\bruff check (?:.* )?-e(?:\s|$)|` +
		`\bpy\.?test .*--(?:fixtures(?:-per-test)?|markers|setup-plan|setup-only|cache-show|ignore[= ](?:\./)?(?:tests?|\.)/?)(?:\s|=|$)|` +
		`\b(?:rspec|mocha|cucumber(?:-js)?|behat|gradlew?) .*--dry-run\b|\b(?:black|isort) (?:.* )?--diff(?:\s|$)`)
	// fails are arguments with which a command that shows differences fails for one.
	fails = lazyregexp.New(`\b(?:black|isort) .*--check|\bisort .*-c(?:\s|$)`)
	// masks end a line whose exit status is not that of its commands.
	masks = lazyregexp.New(`(?:;|\|\|)\s*(?:(?:/(?:usr/)?bin/)?true|:|exit 0)\s*$|` +
		`\|\|\s*(?:echo|printf)\b[^;&|]*$|[^|]\|\s*(?:cat|tee)\b[^;&|]*$`)
)

// idles reports whether a command can show no mistake: it prints, or ends with 0 whatever it finds.
func idles(text string) bool { return idle.MatchString(text) && !fails.MatchString(text) }

// masked reports whether a line ends with 0 whatever its commands do.
func masked(line string) bool { return masks.MatchString(inQuotes.ReplaceAllString(line, "Q")) }

// TestsNothing reports whether no command of a script can fail for a mistake: they print or end, as placeholders of tests do.
func TestsNothing(content string) bool {
	return !slices.ContainsFunc(script(content, ".", Position{}), func(c command) bool {
		return !masked(c.text) && !masked(c.line) && (c.complex || !placeholder.MatchString(c.text) && !idles(c.text))
	})
}

package surface

import (
	"strings"
	"testing"
)

// Content that is made to be slow takes no more than its share: with quadratic work this test would take minutes.
func TestSlowContent(t *testing.T) {
	t.Parallel()
	size := 48 << 10
	if testing.Short() {
		size = 2 << 10 // with the race detector, which has nothing to find here and makes it slow
	}
	for name, unit := range map[string]string{
		"curl": "curl https://a.b/c -o x; wget y; chmod z\n", "slash": "a/b ", "quote": `"`, "object": `{"a":`, "list": "[", "yaml": "- ", "blank": " ", "hex": "a1", "comma": "1,",
		"escape": `\x41`, "paren": "(a", "hidden": "\u200b", "mixed": "aсор ", "lookalike": "сору ", "at": "a@b: ", "alias": "a: &a [*a]\n", "url": "https://a.b/c ",
	} {
		in := strings.Repeat(unit, size/len(unit))
		for _, p := range []string{"a.sh", "a.js", ".github/workflows/a.yml", "package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "uv.lock", "Makefile", "pom.xml", "pyproject.toml", "flake.lock", "AGENTS.md"} {
			for _, s := range examined(p, "", in, modeFile, modeFile) {
				if len(s) > 4*maxPath+4*maxText {
					t.Errorf("%s as %s: a text of %d bytes", name, p, len(s))
				}
			}
		}
	}
}

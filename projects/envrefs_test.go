package projects_test

import (
	"maps"
	"os"
	"regexp"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/projects"
)

// Values of env refer to the image's variables; what cannot be expanded is a mistake in the file.
func TestReferencesInEnv(t *testing.T) {
	t.Parallel()
	load := func(env, more string) (*projects.Project, error) {
		return projects.Parse("/x/p.yaml", []byte("name: p\nenv: {MINE: '"+env+"'}\n"+more), projects.LoadOptions{})
	}
	for value, c := range map[string]struct{ plain, refer map[string]string }{
		"/x:$PATH":      {refer: map[string]string{"MINE": "/x:$PATH"}},
		"h${HOME}$$h":   {refer: map[string]string{"MINE": "h${HOME}$$h"}},
		"a$$b$${PATH}c": {plain: map[string]string{"MINE": "a$b${PATH}c"}},
		"plain":         {plain: map[string]string{"MINE": "plain"}},
	} {
		p, err := load(value, "")
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		if s := p.Spec(); !maps.Equal(s.Env, c.plain) || !maps.Equal(s.ImageEnv, c.refer) {
			t.Errorf("%q: %q, %q", value, s.Env, s.ImageEnv)
		}
	}
	for _, value := range []string{"x${PATH", "${PATH:-x}", "a$", "$1", "$(id)", "$NO_SUCH", "${MINE}"} {
		if _, err := load(value, ""); err == nil {
			t.Errorf("%q is taken", value)
		}
	}
	// What another image has is not known here. A service's values are kept as written.
	if _, err := load("$THEIRS", "image: own:1\nservices: {db: {image: 'db:1', env: {PASSWORD: 'a$b${'}}}\n"); err != nil {
		t.Error(err)
	}
	for more, ok := range map[string]bool{"": false, "browser: true": true, "dev: {command: x, port: 1}": true, "lifecycle: {dev: {command: x, port: 1}}": true} {
		if _, err := load("$CHROME_BIN", more); (err == nil) != ok {
			t.Errorf("%q: a variable of the browser: %v", more, err)
		}
	}
	if _, err := load("${THEIRS", "image: own:1\n"); err == nil {
		t.Error("an unfinished reference is taken")
	}
}

// All variables of the image are known.
func TestVariablesOfTheImage(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../image/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	env := regexp.MustCompile(`(?ms)^ENV (.*?[^\\])$`).FindAllSubmatch(b, -1)
	n := 0
	for _, block := range env {
		for _, m := range regexp.MustCompile(`(?m)^ *([A-Z_]+)=`).FindAllSubmatch(block[1], -1) {
			if _, err := projects.Parse("/x/p.yaml", []byte("name: p\nbrowser: true\nenv: {MINE: '$"+string(m[1])+"'}\n"), projects.LoadOptions{}); err != nil {
				t.Error(err)
			}
			n++
		}
	}
	if n < 10 {
		t.Errorf("%d variables found", n)
	}
}

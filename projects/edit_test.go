package projects_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

const edited = `# head
name: "p" # the name
repo: .

# variables
env:
    A: 1   # one
    # about B
    B: |
      two
      # not a comment

packages:
- jq
# more
- "tree"

network: restricted
services:
  redis: {image: redis:7, ports: ["6379"]}
  db:
    image: 'postgres:17'
    command: postgres -c fsync=off

lifecycle:
  setup:
    - npm ci
  validate: {}
# end
`

func TestChange(t *testing.T) {
	t.Parallel()
	const set, add, unset = yamlkeys.ChangeSet, yamlkeys.ChangeAdd, yamlkeys.ChangeUnset
	for name, row := range map[string]struct {
		change   yamlkeys.Change
		key      string
		words    string // separated by |
		old, now string // of the file
	}{
		"a quoted text":        {set, "name", "q", `"p" # the name`, `"q" # the name`},
		"one with a comment":   {set, "env.A", "a && b", "    A: 1   # one\n", "    A: a && b # one\n"},
		"a number as text":     {set, "tools.node", "22", "# end\n", "tools:\n  node: \"22\"\n# end\n"},
		"a block":              {set, "env.B", "b", "    B: |\n      two\n      # not a comment\n", "    B: b\n"},
		"lines":                {set, "env.A", "a\nb", "    A: 1   # one\n", "    A: |- # one\n      a\n      b\n"},
		"a new entry":          {set, "env.C", "c: d", "      # not a comment\n", "      # not a comment\n    C: 'c: d'\n"},
		"a new key":            {set, "limits.memory", "2g", "# end\n", "limits:\n  memory: 2g\n# end\n"},
		"a list":               {set, "packages", "aa|bb", "packages:\n- jq\n# more\n- \"tree\"\n", "packages:\n  - aa\n  - bb\n"},
		"an item":              {set, "packages[1]", "bb", `- "tree"`, `- "bb"`},
		"in flow style":        {set, "services.redis.image", "redis:8", "redis:7,", "'redis:8',"},
		"a new one in it":      {set, "services.redis.env.X", "y", `redis:7, ports: ["6379"]}`, `'redis:7', ports: ["6379"], env: {X: y}}`},
		"a command":            {set, "services.db.command", "a b", "command: postgres -c fsync=off", "command: a b"},
		"a command of words":   {set, "services.db.command", "a|b", "command: postgres -c fsync=off", "command:\n      - a\n      - b"},
		"a new service":        {set, "services.x.image", "x:1", "fsync=off\n", "fsync=off\n  x:\n    image: x:1\n"},
		"the long form":        {set, "network.allow", "a.example", "network: restricted", "network:\n  mode: restricted\n  allow:\n    - a.example"},
		"the short form":       {set, "network.mode", "none", "network: restricted", "network: none"},
		"an empty mapping":     {add, "lifecycle.setup", "make", "    - npm ci\n", "    - npm ci\n    - make\n"},
		"two items":            {add, "packages", "aa|bb", "- \"tree\"\n", "- \"tree\"\n- aa\n- bb\n"},
		"entries":              {add, "env", "A=2|C=x=y", "    A: 1   # one\n    # about B\n    B: |\n      two\n      # not a comment\n", "    A: \"2\" # one\n    # about B\n    B: |\n      two\n      # not a comment\n    C: x=y\n"},
		"a secret":             {add, "secrets", "K=env://K", "# end\n", "secrets:\n  K: env://K\n# end\n"},
		"a new list":           {add, "init", "true", "# end\n", "init:\n  - \"true\"\n# end\n"},
		"an entry":             {unset, "env.A", "", "    A: 1   # one\n", ""},
		"an entry by its name": {unset, "env", "A", "    A: 1   # one\n", ""},
		"a whole key":          {unset, "packages", "", "packages:\n- jq\n# more\n- \"tree\"\n", ""},
		"an item by its text":  {unset, "packages", "tree", "- \"tree\"\n", ""},
		"all items":            {unset, "lifecycle.setup", "npm ci", "  setup:\n    - npm ci\n", "  setup: []\n"},
		"an item by its place": {unset, "packages[0]", "", "- jq\n", ""},
		"a service":            {unset, "services.redis", "", "  redis: {image: redis:7, ports: [\"6379\"]}\n", ""},
		"of flow style":        {unset, "services.redis.ports", "", `redis:7, ports: ["6379"]}`, "'redis:7'}"},
	} {
		var words []string
		if row.words != "" {
			words = strings.Split(row.words, "|")
		}
		if strings.Count(edited, row.old) != 1 {
			t.Fatalf("%s: %q", name, row.old)
		}
		want := strings.Replace(edited, row.old, row.now, 1)
		for _, eol := range []string{"\n", "\r\n"} {
			got, left, err := projects.Change("x.yaml", []byte(strings.ReplaceAll(edited, "\n", eol)), projects.Edit{Change: row.change, Key: row.key, Words: words})
			if err != nil || len(left) > 0 || string(got) != strings.ReplaceAll(want, "\n", eol) {
				t.Errorf("%s: %v, %v\n%s", name, err, left, got)
			}
		}
	}
}

// What is wrong of an edit is an error, and what was wrong before is none.
func TestWrongChange(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		change yamlkeys.Change
		key    string
		words  []string
		want   any // a pointer to a type of error, or an error
	}{
		{yamlkeys.ChangeSet, "nmae", []string{"x"}, new(*yamlkeys.PathError)},
		{yamlkeys.ChangeSet, "services.redis.imag", []string{"x"}, new(*yamlkeys.PathError)},
		{yamlkeys.ChangeSet, "services", []string{"x"}, new(*yamlkeys.PathError)},
		{yamlkeys.ChangeSet, "image", []string{"x", "y"}, new(*yamlkeys.PathError)},
		{yamlkeys.ChangeSet, "name.x", []string{"x"}, new(*yamlkeys.PathError)},
		{yamlkeys.ChangeSet, "packages[7]", []string{"x"}, yamlkeys.ErrNotSet},
		{yamlkeys.ChangeAdd, "image", []string{"x"}, new(*yamlkeys.PathError)},
		{yamlkeys.ChangeAdd, "env", []string{"x"}, new(*yamlkeys.PathError)},
		{yamlkeys.ChangeUnset, "image", nil, yamlkeys.ErrNotSet},
		{yamlkeys.ChangeUnset, "packages", []string{"none"}, yamlkeys.ErrNotSet},
		{yamlkeys.ChangeUnset, "name", nil, new(*projects.InvalidError)},
		{yamlkeys.ChangeSet, "limits.memory", []string{"much"}, new(*projects.InvalidError)},
		{yamlkeys.ChangeSet, "secrets.K", []string{"value"}, new(*projects.InvalidError)},
		{yamlkeys.ChangeSet, "env.A-B", []string{"value"}, new(*projects.InvalidError)},
	} {
		got, _, err := projects.Change("x.yaml", []byte(edited), projects.Edit{Change: row.change, Key: row.key, Words: row.words})
		is := false
		if target, ok := row.want.(error); ok {
			is = errors.Is(err, target)
		} else {
			is = errors.As(err, row.want)
		}
		if !is || got != nil {
			t.Errorf("%s %q: %v", row.key, row.words, err)
		}
	}
	const wrong = "name: p\nimage: i\nenv: {A: b}\nlifecycle:\n  env: {A: c}\n"
	got, left, err := projects.Change("x.yaml", []byte(wrong), projects.Edit{Key: "image", Words: []string{"j"}})
	if err != nil || len(left) != 1 || string(got) != strings.Replace(wrong, "i\n", "j\n", 1) {
		t.Errorf("%s, %v, %v", got, left, err)
	}
	for content, bad := range map[string]bool{"name: [": true, "": false, "# nothing\n": false} {
		got, _, err := projects.Change("x.yaml", []byte(content), projects.Edit{Key: "name", Words: []string{"x"}})
		if (err != nil) != bad || !bad && string(got) != content+"name: x\n" {
			t.Errorf("%q: %s, %v", content, got, err)
		}
	}
	const alias = "name: p\nx-a: &a\n  A: b\nenv: *a\n"
	if _, _, err := projects.Change("x.yaml", []byte(alias), projects.Edit{Key: "env.A", Words: []string{"j"}}); !errors.As(err, new(*yamlkeys.PathError)) {
		t.Error(err)
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	p, err := projects.Parse("x.yaml", []byte(edited), projects.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"name": "p\n", "env.A": "1\n", "packages": "jq\ntree\n", "packages[1]": "tree\n", "network.mode": "restricted\n", "timeout_minutes": "30\n",
		"services.db": "image: postgres:17\ncommand: postgres -c fsync=off\n", "proof": "true\n",
	} {
		if _, got, err := p.Value(key); err != nil || got != want {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	for _, key := range []string{"image", "env.X", "packages[2]", "network.allow", "services.x.image"} {
		if _, _, err := p.Value(key); !errors.Is(err, yamlkeys.ErrNotSet) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

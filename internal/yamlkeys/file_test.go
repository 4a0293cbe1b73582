package yamlkeys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	text := &Schema{Kind: Text}
	keys := &Schema{Kind: Object, Keys: []Key{
		{Name: "text", Schema: text},
		{Name: "number", Schema: &Schema{Kind: Integer, Max: 1000}},
		{Name: "true", Schema: &Schema{Kind: Boolean}},
		{Name: "list", Schema: &Schema{Kind: List, Item: text}},
		{Name: "map", Schema: &Schema{Kind: Mapping, Item: text}},
	}}
	for name, row := range map[string]struct {
		content string
		wrong   int
	}{
		"all":             {"text: a\nnumber: 2\ntrue: true\nlist: [a, b]\nmap: {x: 1, y: 2}\n", 0},
		"nothing":         {"", 0},
		"null":            {"~\n", 0},
		"unknown":         {"a: 1\nb: 2\n", 2},
		"twice":           {"text: a\ntext: b\n", 1},
		"all wrong":       {"text: []\nnumber: a\ntrue: 1\nlist: a\nmap: []\n", 5},
		"too little":      {"number: 0\n", 1},
		"no number":       {"number: .nan\n", 1},
		"without end":     {"number: .inf\n", 1},
		"too much":        {"number: 9223372036854775807\n", 1},
		"not whole":       {"number: 1.5\n", 1},
		"whole":           {"number: 2.0\n", 0},
		"an alias":        {"text: &a x\nlist: [*a, b]\nmap: {x: *a}\n", 0},
		"of another kind": {"list: &a [x]\ntext: *a\n", 1},
		"empty":           {"text: ''\n", 1},
		"in the list":     {"list: [a, [], {}]\n", 2},
		"two documents":   {"text: a\n---\ntext: b\n", 1},
		"no YAML":         {"{", 1},
		"an anchor":       {"map: &a {x: 1}\n", 0},
		"one of a list":   {"- a\n", 1},
		"behind an alias": {"map: &a {x: 1, x: 2}\n", 1},
		"too large":       {strings.Repeat("#", MaxFile+1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load("f.yaml", []byte(row.content), keys)
			got := 0
			if err != nil {
				got = len(strings.Split(err.Error(), "\n"))
			}
			if got != row.wrong {
				t.Errorf("%d: %v", got, err)
			}
		})
	}
}

func TestLoadPlace(t *testing.T) {
	t.Parallel()
	_, err := Load("f.yaml", []byte("a:\n  numbr: 1\n"), &Schema{Kind: Object, Keys: []Key{
		{Name: "a", Schema: &Schema{Kind: Object, Keys: []Key{{Name: "number", Schema: &Schema{Kind: Number}}}}},
	}})
	if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:2:3: error["+CodeUnknown+"]") || !strings.Contains(err.Error(), `"number"`) {
		t.Error(err)
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	if _, err := ReadFile(filepath.Join(t.TempDir(), "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, 2*MaxFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(large); err != nil || len(b) != MaxFile+1 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(pipe); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
}

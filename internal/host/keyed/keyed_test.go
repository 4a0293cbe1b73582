package keyed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"
)

func TestRead(t *testing.T) {
	t.Parallel()
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
		"empty":           {"text: ''\n", 1},
		"in the list":     {"list: [a, [], {}]\n", 2},
		"two documents":   {"text: a\n---\ntext: b\n", 1},
		"no YAML":         {"{", 1},
		"an anchor":       {"map: &a {x: 1}\n", 0},
		"one of a list":   {"- a\n", 1},
		"behind an alias": {"map: &a {x: 1, x: 2}\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s string
			var n int64
			var b bool
			var list []string
			err := Read("f.yaml", []byte(row.content), func(r *Reader, v *yaml.Node) {
				r.Mapping(v, "", Keys{
					"text": r.String("text", &s), "number": Number(r, "number", 1, &n), "true": r.Bool("true", &b), "list": r.Strings("list", &list),
					"map": func(v *yaml.Node) { r.Each(v, "map.", func(_, _ *yaml.Node) {}) },
				})
			})
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

func TestOpen(t *testing.T) {
	t.Parallel()
	if _, err := Open(filepath.Join(t.TempDir(), "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(large); err == nil {
		t.Error("a file that is too large is read")
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(pipe); len(b) > 0 || err != nil { // it is not waited for
		t.Errorf("%q, %v", b, err)
	}
}

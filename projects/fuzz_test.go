package projects_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

// FuzzParse: no input breaks the reader; what it accepts makes an order that
// the guest accepts, and reads back from what show prints.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.yaml", "examples/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		opts := projects.LoadOptions{Dir: "/cwd", Home: "/home/me"}
		p, err := projects.Parse("/src/x.yaml", content, opts)
		if err != nil {
			list, ok := projects.Problems(err)
			if !ok || len(list) == 0 {
				t.Fatalf("an error without problems: %v", err)
			}
			lines := len(regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]").Split(string(content), -1))
			for _, q := range list {
				if q.Code == "" || q.Message == "" || q.Line < 1 || q.Col < 1 || q.Line > lines {
					t.Fatalf("a problem without its place (of %d lines): %+v", lines, q)
				}
			}
			var b strings.Builder
			if err := list.Print(&b, diag.Style{}); err != nil || strings.ContainsAny(b.String(), "\x1b\x00\r") {
				t.Fatalf("%v in %q", err, b.String())
			}
			return
		}
		if _, err := p.Order(projects.OrderInput{Task: "t"}); err != nil {
			t.Fatalf("a valid project makes an invalid order: %v", err)
		}
		if _, err := projects.Parse("/src/x.yaml", []byte(p.Show(true)), opts); err != nil {
			t.Fatalf("show is not readable: %v\n%s", err, p.Show(true))
		}
	})
}

// FuzzSecret: a literal below secrets is never printed, however it is written.
func FuzzSecret(f *testing.F) {
	for _, s := range []string{
		"plain", "\"quoted\"", "'single'", "|\n    block", ">-\n    folded\n    twice", "[list]", "{a: b}",
		"&x anchored", "!!str tagged", "? key",
	} {
		f.Add(s, "")
		f.Add(s, "broken: [")
	}
	f.Fuzz(func(t *testing.T, value, rest string) {
		const secret = "hunter2hunter2"
		for _, lead := range []string{"secrets:\n  A: ", "secrets: {A: ", "env: {}\nsecrets:\n    \"A\": "} {
			content := "name: x\n" + lead + secret + value + "\n" + rest + "\n"
			_, err := projects.Parse("/src/x.yaml", []byte(content), projects.LoadOptions{Dir: "/cwd"})
			var b strings.Builder
			if list, ok := projects.Problems(err); ok {
				if err := list.Print(&b, diag.Style{}); err != nil {
					t.Fatal(err)
				}
				b.WriteString(err.Error())
			}
			if strings.Contains(b.String(), secret) {
				t.Fatalf("printed:\n%s\nof:\n%s", b.String(), content)
			}
		}
	})
}

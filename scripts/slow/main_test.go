package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

func TestRun(t *testing.T) {
	t.Parallel()
	const passed = `{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA/slow","Elapsed":7}
{"Action":"pass","Package":"p","Test":"TestA/quick","Elapsed":0.5}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":7.5}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":2}
{"Action":"output","Package":"p","Test":"TestC","Output":"    a_test.go:7: only root can\n"}
{"Action":"skip","Package":"p","Test":"TestC","Elapsed":0}
`
	const skipped = "\n1 more were skipped, and count as nothing:\n  p TestC: only root can\n"
	const end = `{"Action":"output","Package":"p","Output":"PASS\nok  \tp\t8s\n"}
{"Action":"pass","Package":"p","Elapsed":8}
`
	for name, c := range map[string]struct {
		in, out string
		ok      bool
	}{
		"passes": {passed + end, "ok  \tp\t8s\n\n3 tests, 10 s in all; the slowest:\n     7.0 s  p TestA/slow\n     2.0 s  p TestB\n" +
			skipped, true},
		"tells of boxes": {
			`{"Action":"output","Package":"p","Output":"boxes: TestB 2\n"}
{"Action":"output","Package":"p","Output":"boxes: TestA 1\n"}
{"Action":"output","Package":"p","Output":"boxes: TestA/quick 3\n"}
` + passed + end,
			"ok  \tp\t8s\n\n4 tests, 10 s in all, 6 boxes; the slowest:\n     7.0 s    0 boxes  p TestA/slow\n" +
				"     2.0 s    2 boxes  p TestB\n" + skipped, true,
		},
		"fails": {
			`{"Action":"output","Package":"p","Test":"TestA","Output":"why\n"}` + "\n" +
				`{"Action":"fail","Package":"p","Test":"TestA","Elapsed":1}` + "\n",
			"why\n\n1 tests, 1 s in all:\n     1.0 s  p TestA\n", false,
		},
		"does not compile": {
			"{\"Action\":\"build-output\",\"Output\":\"no\\n\"}\n{\"Action\":\"build-fail\"}\n",
			"no\n\n0 tests, 0 s in all:\n", false,
		},
		"is cut off": {
			`{"Action":"output","Package":"p","Test":"TestA","Output":"last words\n"}` + "\n",
			"last words\n\n0 tests, 0 s in all:\n", false,
		},
		"says nothing": {"", "\n0 tests, 0 s in all:\n", false},
	} {
		var out strings.Builder
		if err := run(strings.NewReader(c.in), &out, 2); (err == nil) != c.ok || out.String() != c.out {
			t.Errorf("%s: %v, printed %q, want %q", name, err, out.String(), c.out)
		}
	}
}

// TestTested: a `go test` that is killed, or fails without a word of it, is a failure, whatever it printed before.
func TestTested(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../tested.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		test, slow string // what go does
		ok         bool
	}{
		"passes":           {"true", "cat >/dev/null", true},
		"is killed":        {"kill -KILL $$", "cat >/dev/null", false},
		"fails":            {"exit 1", "cat >/dev/null", false},
		"a test failed":    {"true", "cat >/dev/null; exit 1", false},
		"nobody reads it":  {"true", "kill -KILL $$", false},
		"does not compile": {"exit 2", "cat >/dev/null; exit 1", false},
	} {
		bin := t.TempDir()
		text := "#!/bin/sh\ncase $1 in\ntest) echo '{\"Action\":\"pass\",\"Package\":\"p\"}'; " + c.test + ";;\nrun) " + c.slow + ";;\nesac\n"
		if err := os.WriteFile(filepath.Join(bin, "go"), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := proc.Output(t.Context(), proc.Spec{
			Argv: []string{"sh", script, "3", "./..."},
			Env:  []string{"PATH=" + bin + ":" + os.Getenv("PATH")},
		})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

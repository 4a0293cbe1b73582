package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	t.Parallel()
	const passed = `{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA/slow","Elapsed":7}
{"Action":"pass","Package":"p","Test":"TestA/quick","Elapsed":0.5}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":7.5}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":2}
`
	const end = `{"Action":"output","Package":"p","Output":"PASS\nok  \tp\t8s\n"}
{"Action":"pass","Package":"p","Elapsed":8}
`
	for name, c := range map[string]struct {
		in, out string
		ok      bool
	}{
		"passes": {passed + end, "ok  \tp\t8s\n\n3 tests, 10 s in all; the slowest:\n     7.0 s  p TestA/slow\n     2.0 s  p TestB\n", true},
		"fails": {
			`{"Action":"output","Package":"p","Test":"TestA","Output":"why\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA","Elapsed":1}` + "\n",
			"why\n\n1 tests, 1 s in all; the slowest:\n     1.0 s  p TestA\n", false,
		},
		"does not compile": {"{\"Action\":\"build-output\",\"Output\":\"no\\n\"}\n{\"Action\":\"build-fail\"}\n", "no\n\n0 tests, 0 s in all; the slowest:\n", false},
		"is cut off":       {`{"Action":"output","Package":"p","Test":"TestA","Output":"last words\n"}` + "\n", "last words\n\n0 tests, 0 s in all; the slowest:\n", false},
		"says nothing":     {"", "\n0 tests, 0 s in all; the slowest:\n", false},
	} {
		var out strings.Builder
		if err := run(strings.NewReader(c.in), &out, 2); (err == nil) != c.ok || out.String() != c.out {
			t.Errorf("%s: %v, printed %q, want %q", name, err, out.String(), c.out)
		}
	}
}

package notebook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// script is a session that does what a test says for each code.
type script map[string]func(c sandbox.Cell) (sandbox.CellResult, error)

func (s script) Run(_ context.Context, c sandbox.Cell) (sandbox.CellResult, error) {
	return s[c.Code](c)
}

func ok(f func(c sandbox.Cell)) func(sandbox.Cell) (sandbox.CellResult, error) {
	return func(c sandbox.Cell) (sandbox.CellResult, error) {
		f(c)
		return sandbox.CellResult{OK: true}, nil
	}
}

func raises(name string) func(sandbox.Cell) (sandbox.CellResult, error) {
	return func(sandbox.Cell) (sandbox.CellResult, error) {
		return sandbox.CellResult{Error: name, Message: "why", ExitStatus: sandbox.ExitStatus{ExitCode: 1}}, nil
	}
}

// of is a notebook with code cells.
func of(t *testing.T, cells ...string) *Notebook {
	t.Helper()
	parts := make([]string, 0, len(cells))
	for _, c := range cells {
		if !strings.HasPrefix(c, "{") {
			c = fmt.Sprintf(`{"cell_type":"code","metadata":{},"source":%q,"outputs":[{"output_type":"old"}],"execution_count":9}`, c)
		}
		parts = append(parts, c)
	}
	n, err := Parse([]byte(`{"nbformat":4,"nbformat_minor":4,"metadata":{},"cells":[` + strings.Join(parts, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// filled are the outputs and counts of a notebook's cells, read back.
func filled(t *testing.T, n *Notebook) (outputs []string, counts []string) {
	t.Helper()
	b, err := n.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Cells []object }
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, c := range got.Cells {
		var v any
		if err := json.Unmarshal(c["outputs"], &v); err != nil {
			t.Fatal(err)
		}
		short, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		outputs, counts = append(outputs, string(short)), append(counts, string(c["execution_count"]))
	}
	return outputs, counts
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON": "hello", "a list": "[]", "null": "null", "no version": `{"cells":[]}`, "version 3": `{"nbformat":3,"worksheets":[]}`, "version 4.5": `{"nbformat":4.5,"cells":[]}`,
		"no cells": `{"nbformat":4}`, "cells of null": `{"nbformat":4,"cells":null}`, "cells of texts": `{"nbformat":4,"cells":["x"]}`, "a cell of null": `{"nbformat":4,"cells":[null]}`,
		"a cell without a type": `{"nbformat":4,"cells":[{"source":""}]}`, "a source of numbers": `{"nbformat":4,"cells":[{"cell_type":"code","source":[1]}]}`,
		"no source": `{"nbformat":4,"cells":[{"cell_type":"code"}]}`, "half": `{"nbformat":4,"cells":[`, "deep": strings.Repeat("[", 100000),
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, ErrNotebook) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLanguage(t *testing.T) {
	t.Parallel()
	for meta, want := range map[string]bool{
		`{}`: true, `[]`: true, `{"kernelspec":{"name":"python3"}}`: true, `{"kernelspec":{"name":"x","language":"Python"}}`: true, `{"language_info":{"name":"ipython"}}`: true,
		`{"kernelspec":{"name":"ir"}}`: false, `{"kernelspec":{"name":"ir","language":"R"}}`: false, `{"language_info":{"name":"julia"}}`: false,
	} {
		n, err := Parse([]byte(`{"nbformat":4,"cells":[],"metadata":` + meta + `}`))
		if err != nil || n.Python() != want {
			t.Errorf("%s: %v", meta, err)
		}
	}
}

// What is not known of a notebook stays as it is, and so do other cells.
func TestKept(t *testing.T) {
	t.Parallel()
	const text = `{
 "cells": [
  {
   "cell_type": "markdown",
   "id": "a",
   "metadata": {
    "ours": 1e400
   },
   "source": "# <b>&</b> é"
  },
  {
   "cell_type": "code",
   "execution_count": null,
   "id": "b",
   "later": [
    12345678901234567890
   ],
   "metadata": {},
   "outputs": [],
   "source": [
    "  \n"
   ]
  }
 ],
 "future": {
  "z": 1,
  "a": 2
 },
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 99
}
`
	n, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := n.Run(t.Context(), script{}, Options{}); err != nil || r.Ran != 0 || r.Code != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if b, err := n.Encode(); err != nil || string(b) != text {
		t.Errorf("%s, %v", b, err)
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	n := of(t, "a", "b", "c")
	r, err := n.Run(t.Context(), script{
		"a": ok(func(c sandbox.Cell) {
			_, _ = io.WriteString(c.Stdout, "1\n2")
			_, _ = io.WriteString(c.Stdout, "3\xff")
			_, _ = io.WriteString(c.Stderr, "e\n")
			c.Display(sandbox.Display{Data: map[string]json.RawMessage{"image/png": raw(`"QQ=="`), "application/x+json": raw(`{"x":1}`), "text/x": raw(`7`), "": raw(`""`)}, Metadata: raw(`[]`)})
			_, _ = io.WriteString(c.Stdout, "4")
		}),
		"b": ok(func(c sandbox.Cell) {
			c.Display(sandbox.Display{Data: map[string]json.RawMessage{"text/plain": raw(`"6"`)}, Metadata: raw(`{"m":1}`), Result: true})
			c.Display(sandbox.Display{Data: map[string]json.RawMessage{"text/plain": raw(`{`)}})
		}),
		"c": func(sandbox.Cell) (sandbox.CellResult, error) {
			return sandbox.CellResult{OK: true, Value: "7\n8"}, nil
		},
	}, Options{})
	if err != nil || r.Ran != 3 || len(r.Failed) != 0 || r.Stopped {
		t.Errorf("%+v, %v", r, err)
	}
	got, counts := filled(t, n)
	want := []string{
		`[{"name":"stdout","output_type":"stream","text":["1\n","23` + "\uFFFD" + `"]},{"name":"stderr","output_type":"stream","text":["e\n"]},` +
			`{"data":{"application/x+json":{"x":1},"image/png":"QQ=="},"metadata":{},"output_type":"display_data"},{"name":"stdout","output_type":"stream","text":["4"]}]`,
		`[{"data":{"text/plain":"6"},"execution_count":2,"metadata":{"m":1},"output_type":"execute_result"},`,
		`[{"data":{"text/plain":["7\n","8"]},"execution_count":3,"metadata":{},"output_type":"execute_result"}]`,
	}
	if got[0] != want[0] || !strings.HasPrefix(got[1], want[1]) || got[2] != want[2] {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if !reflect.DeepEqual(counts, []string{"1", "2", "3"}) {
		t.Error(counts)
	}
}

// A sandbox cannot fill a machine with the outputs of a notebook.
func TestBounds(t *testing.T) {
	t.Parallel()
	n := of(t, "print", "show", "many")
	part, picture := strings.Repeat("x", 64<<10), json.RawMessage(`"`+strings.Repeat("A", 3<<20)+`"`)
	if _, err := n.Run(t.Context(), script{
		"print": ok(func(c sandbox.Cell) {
			for range 1600 {
				_, _ = io.WriteString(c.Stdout, part)
			}
		}),
		"show": ok(func(c sandbox.Cell) {
			for range 30 {
				c.Display(sandbox.Display{Data: map[string]json.RawMessage{"image/png": picture}})
			}
		}),
		"many": ok(func(c sandbox.Cell) {
			for range 100000 {
				c.Display(sandbox.Display{Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`""`)}})
			}
		}),
	}, Options{}); err != nil {
		t.Fatal(err)
	}
	got, _ := filled(t, n)
	if size := len(got[0]); size < MaxText || size > MaxText+1000 {
		t.Error(size)
	}
	if size := len(got[1]); size < MaxShown/2 || size > MaxShown+10000 {
		t.Error(size)
	}
	if c := strings.Count(got[2], "display_data"); c != maxShows {
		t.Error(c)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	fine := ok(func(sandbox.Cell) {})
	ended := func(sandbox.Cell) (sandbox.CellResult, error) {
		return sandbox.CellResult{Ended: true}, nil
	}
	lost := errors.New("lost")
	tagged := `{"cell_type":"code","metadata":{"tags":["%s"]},"source":"bad","outputs":[],"execution_count":null}`
	for name, row := range map[string]struct {
		cells  []string
		o      Options
		want   Report
		err    error
		counts []string
	}{
		"stops":              {[]string{"a", "bad", "a"}, Options{}, Report{Code: 3, Ran: 2, Failed: []int{2}, Error: "E", Message: "why", Stopped: true}, nil, []string{"1", "2", "null"}},
		"the last one":       {[]string{"a", "bad"}, Options{}, Report{Code: 2, Ran: 2, Failed: []int{2}, Error: "E", Message: "why"}, nil, []string{"1", "2"}},
		"goes on":            {[]string{"bad", "a"}, Options{AllowErrors: true}, Report{Code: 2, Ran: 2, Failed: []int{1}, Error: "E", Message: "why"}, nil, []string{"1", "2"}},
		"is to fail":         {[]string{fmt.Sprintf(tagged, tagRaises), "a"}, Options{}, Report{Code: 2, Ran: 2, Failed: []int{}}, nil, []string{"1", "2"}},
		"is skipped":         {[]string{fmt.Sprintf(tagged, tagSkip), "a"}, Options{}, Report{Code: 2, Ran: 1, Failed: []int{}}, nil, []string{"null", "1"}},
		"ends the session":   {[]string{"end", "a"}, Options{AllowErrors: true}, Report{Code: 2, Ran: 1, Failed: []int{1}, Error: "SessionEnded", Ended: true, Stopped: true}, nil, []string{"1", "null"}},
		"loses the sandbox":  {[]string{"a", "lost", "a"}, Options{}, Report{Code: 3, Ran: 2, Failed: []int{}, Stopped: true}, lost, []string{"1", "2", "null"}},
		"times out":          {[]string{"slow", "a"}, Options{}, Report{Code: 2, Ran: 1, Failed: []int{1}, Error: "TimedOut", TimedOut: true, Stopped: true}, nil, []string{"1", "null"}},
		"nothing in between": {[]string{"a", " \n", "a"}, Options{}, Report{Code: 3, Ran: 2, Failed: []int{}}, nil, []string{"1", "null", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := of(t, row.cells...)
			r, err := n.Run(t.Context(), script{
				"a": fine, "bad": raises("E"), "end": ended,
				"lost": func(sandbox.Cell) (sandbox.CellResult, error) { return sandbox.CellResult{}, lost },
				"slow": func(sandbox.Cell) (sandbox.CellResult, error) {
					return sandbox.CellResult{Error: "KeyboardInterrupt", ExitStatus: sandbox.ExitStatus{TimedOut: true, ExitCode: 1}}, nil
				},
			}, row.o)
			if row.want.Error == "SessionEnded" || row.want.Error == "TimedOut" {
				r.Message = "" // prose
			}
			if !errors.Is(err, row.err) || !reflect.DeepEqual(r, row.want) {
				t.Errorf("%+v, %v", r, err)
			}
			if _, counts := filled(t, n); !reflect.DeepEqual(counts, row.counts) {
				t.Error(counts)
			}
		})
	}
}

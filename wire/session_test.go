package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSessionCheck(t *testing.T) {
	t.Parallel()
	for _, s := range []SessionSpec{
		{ID: "a", Driver: DriverPython},
		{ID: "9._-" + strings.Repeat("x", 60), Driver: DriverJupyter, Kernel: "ir"},
		{ID: "a", Driver: DriverNode, Argv: []string{"node", "-r", "x"}, Env: []string{"A="}, Dir: "/x"},
	} {
		if err := s.Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for name, s := range map[string]SessionSpec{
		"no id": {Driver: DriverBash}, "a path": {ID: "../x", Driver: DriverBash}, "too long": {
			ID:     strings.Repeat("x", 65),
			Driver: DriverBash,
		}, "a line": {ID: "a\n", Driver: DriverBash},
		"no driver": {ID: "a"}, "no such driver": {ID: "a", Driver: "perl"}, "a kernel of no Jupyter": {
			ID: "a", Driver: DriverPython,
			Kernel: "ir",
		}, "a kernel of code": {ID: "a", Driver: DriverJupyter, Kernel: "x\"\nimport os"},
		"no program": {ID: "a", Driver: DriverBash, Argv: []string{""}}, "no name": {ID: "a", Driver: DriverBash, Env: []string{"=x"}},
		"a zero byte": {ID: "a", Driver: DriverBash, Dir: "/\x00"},
	} {
		if s.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := (SessionSpec{ID: "/", Driver: "perl", Env: []string{"x"}}).Check(); err == nil || len(strings.Split(err.Error(), "\n")) != 3 {
		t.Errorf("not all mistakes: %v", err)
	}
	for name, e := range map[string]CellEnd{"a code below": {Code: -1}, "a code above": {Code: 256}, "time that runs back": {DurationMS: -1}} {
		if e.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A page is as long in its frame as it is.
func TestDisplayFrame(t *testing.T) {
	t.Parallel()
	page, err := json.Marshal(strings.Repeat("x<", 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	var d Display
	page = []byte(strings.ReplaceAll(string(page), `\u003c`, "<"))
	b, err := DocumentFrame(FrameDisplay, Display{Data: map[string]json.RawMessage{"text/html": page}})
	if err != nil || len(b) > len(page)+100 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	f, err := NewReader(strings.NewReader(string(b))).Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Decode(&d); err != nil || string(d.Data["text/html"]) != string(page) {
		t.Errorf("%d bytes, %v", len(d.Data["text/html"]), err)
	}
}

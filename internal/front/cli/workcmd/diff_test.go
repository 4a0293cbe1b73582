package workcmd

import (
	"bytes"
	"strings"
	"testing"
)

// A terminal obeys nothing of a diff; a line that comes in parts is one.
func TestDiffOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &diffWriter{w: &out, color: true}
	for _, part := range []string{"@@ -1 +1 @@\n+a\x1b[2Jb", "c\n-d\n e", "f"} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.flush(); err != nil || out.String() != "\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[32m+abc\x1b[0m\n\x1b[31m-d\x1b[0m\n ef\n" {
		t.Errorf("%q, %v", &out, err)
	}
}

// TestDiffOfALongLine: pieces of a line make one, whatever its length.
func TestDiffOfALongLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &diffWriter{w: &out}
	piece := bytes.Repeat([]byte("x"), 32<<10)
	const pieces = 100
	for range pieces {
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []string{"\n+a\n-", "b\x1b", "\n c"} {
		if _, err := w.Write([]byte(end)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.flush(); err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(out.String(), "\n")
	lines := strings.Split(rest, "\n")
	if len(first) != pieces*len(piece) || len(lines) != 4 || lines[0] != "+a" || strings.Contains(lines[1], "\x1b") || lines[2] != " c" {
		t.Errorf("%d bytes, then %q", len(first), rest)
	}
}

package runner

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestCapLog(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		size := r.IntN(200)
		data := make([]byte, size)
		for i := range data {
			data[i] = byte('a' + i%26)
		}
		path := filepath.Join(t.TempDir(), "log")
		l, err := newCapLog(path, 40, 30)
		if err != nil {
			t.Fatal(err)
		}
		for rest := data; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			if k, err := l.Write(rest[:n]); k != n || err != nil {
				t.Fatalf("wrote %d, %v", k, err)
			}
			rest = rest[n:]
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		want := string(data)
		if size > 70 {
			want = fmt.Sprintf("%s"+droppedMark+"%s", data[:40], size-70, data[size-30:])
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Fatalf("%d bytes: got %q, want %q (%v)", size, got, want, err)
		}
	}
}

func TestCapLogGoesOnAtALine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, err := newCapLog(path, 4, 10)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprint(l, "one\ntwo\nthree\nfour\nfive\n") // the ring holds "four\nfive\n" after the cut
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "one\n"+fmt.Sprintf(droppedMark, len("two\nthree\nfour\n"))+"five\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFlow(t *testing.T) {
	t.Parallel()
	var sent []string
	f := newRateLimiter(func(e workorder.Event) { sent = append(sent, e.Text) }, "the.log", func(s string) workorder.Event { return workorder.Event{Text: s} })
	clock := f.last
	f.now = func() time.Time { return clock }
	n := 0
	for range 3 * eventBurst {
		if f.allow(10) {
			n++
		}
	}
	if n != eventBurst || len(sent) != 0 {
		t.Errorf("%d events passed, notes %q", n, sent)
	}
	clock = clock.Add(10 * time.Second)
	if !f.allow(10) || len(sent) != 1 || !strings.Contains(sent[0], strconv.Itoa(2*eventBurst)) || !strings.Contains(sent[0], "the.log") {
		t.Errorf("after a pause: %q", sent)
	}
	f.left = 5
	if f.allow(10) {
		t.Error("the total is not bounded")
	}
	f.close()
	f.close()
	if len(sent) != 2 {
		t.Errorf("at the end: %q", sent)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "abc", strings.Repeat("ä", 50), strings.Repeat("x", 20), strings.Repeat("x", 21)} {
		got := text.Cut(s, 20)
		if len(got) > 20 || !utf8.ValidString(got) || len(s) <= 20 && got != s {
			t.Errorf("%q was cut to %q", s, got)
		}
	}
}

// A line that is too long to be read is said, with what that may have cost.
func TestLineThatIsTooLong(t *testing.T) {
	t.Parallel()
	for size, said := range map[int]bool{8 << 20: false, 20 << 20: true} {
		b := newBox(t, fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x; echo; exit 3`, size))
		out := Agent(t.Context(), b.Config)
		if got := slices.ContainsFunc(out.Warnings, func(w string) bool { return strings.Contains(w, "20 MiB") }); got != said || out.Reasons.Has(workorder.ReasonUnread) != said {
			t.Errorf("%d bytes: %q, %q", size, out.Reasons, out.Warnings)
		}
	}
}

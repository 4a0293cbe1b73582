package outcome

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestMergeEvents: what the stream lost is in the box's own copy.
func TestMergeEvents(t *testing.T) {
	t.Parallel()
	event := func(seq int, text string) string {
		return fmt.Sprintf(`{"seq":%d,"type":"warning","text":%q}`, seq, text) + "\n"
	}
	long := `{"seq":8,"type":"warning","text":"` + strings.Repeat("x", maxLine) + "\"}\n"
	for name, c := range map[string]struct{ have, box, want string }{
		"a gap and an end": {
			event(1, "a") + event(4, "d"), event(1, "A") + event(2, "B") + event(3, "C") + event(4, "D") + event(5, "E"),
			event(1, "a") + event(2, "B") + event(3, "C") + event(4, "d") + event(5, "E"),
		},
		"no record":      {"", event(1, "A"), event(1, "A")},
		"nothing new":    {event(1, "a"), event(1, "A"), event(1, "a")},
		"fewer than had": {event(1, "a") + event(2, "b"), event(2, "B"), event(1, "a") + event(2, "b")},
		"hostile": {
			event(7, "g"), "junk\n" + event(3, "C") + event(2, "out of order") + event(-1, "no") + long + event(9, "I") + `{"seq":10,`,
			event(3, "C") + event(7, "g") + event(9, "I"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, workorder.EventsFile)
			if err := os.WriteFile(file, []byte(c.have), 0o600); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := MergeEvents(root, strings.NewReader(c.box)); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if d := cmp.Diff(c.want, string(got)); err != nil || d != "" {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
			if left, _ := os.ReadDir(dir); len(left) != 1 {
				t.Errorf("%d files are left", len(left))
			}
		})
	}
}

// TestRecorder: a recorder opened on what a killed one left goes on after its
// last whole line.
func TestRecorder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, workorder.EventsFile)
	one, two := `{"seq":1,"time":"2026-01-01T00:00:00Z","type":"ready"}`+"\n", `{"seq":2,"time":"2026-01-01T00:00:01Z","type":"warning","text":"x"}`+"\n"
	if err := os.WriteFile(file, []byte(one+two[:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	var shown []int64
	r, err := OpenRecorder(dir, func(e workorder.Event) { shown = append(shown, e.Seq) })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{one, "not an event\n", two[:5], two[5:], two, strings.Repeat("x", maxLine+1), "y\n", `{"seq":3,"type":"warning"}` + "\n", `{"seq":4,`} {
		if _, err := r.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := one + two + `{"seq":3,"type":"warning"}` + "\n"; string(got) != want {
		t.Errorf("record is %q", got)
	}
	if len(shown) != 2 || shown[0] != 2 || shown[1] != 3 {
		t.Errorf("shown %v", shown)
	}
}

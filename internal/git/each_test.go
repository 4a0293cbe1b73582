package git

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A list of paths may be longer than what is kept of any other output.
func TestEachHasNoLimit(t *testing.T) {
	t.Parallel()
	r := Repo{Dir: t.TempDir(), Tree: true}
	if err := (Repo{Dir: r.Dir}).Run(t.Context(), "init", "-q"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "a\nb"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	blob, err := r.Output(t.Context(), "hash-object", "-w", "--", "a\nb")
	if err != nil {
		t.Fatal(err)
	}
	entry := "100644 " + strings.TrimSpace(string(blob)) + "\t"
	var index strings.Builder
	for i := range n {
		index.WriteString(entry + strings.Repeat("x", 200) + strings.Repeat("y", i%7) + string(rune('0'+i%10)) + "/" + strings.Repeat("z",
			i%211) + string(rune('a'+i%26)) + string(rune('A'+i/26%26)) + string(rune('A'+i/676%26)) + string(rune('A'+i/17576%26)) + "\x00")
	}
	in := r
	in.Stdin = index.String() + entry + "a\nb\x00"
	if err := in.Run(t.Context(), "update-index", "-z", "--index-info"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Output(t.Context(), "ls-files", "-z"); err == nil {
		t.Fatal("the list is short: nothing is tested")
	}
	var got []string
	if err := r.Each(t.Context(), func(path string) { got = append(got, path) }, "ls-files", "-z"); err != nil {
		t.Fatal(err)
	}
	if len(got) != n+1 || !slices.Contains(got, "a\nb") {
		t.Errorf("%d paths, want %d", len(got), n+1)
	}
	if err := r.Each(t.Context(), func(string) {}, "ls-files", "--no-such-option"); err == nil || !strings.Contains(err.Error(),
		"no-such-option") {
		t.Errorf("got %v", err)
	}
}

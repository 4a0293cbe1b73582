package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// section returns a section of ARCHITECTURE.md, without its heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	b, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("ARCHITECTURE.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// Each question leads to files that are there.
func TestWhereToLook(t *testing.T) {
	t.Parallel()
	rows := 0
	for line := range strings.Lines(section(t, "Where to look")) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| question") {
			continue
		}
		rows++
		cells := strings.Split(line, "|")
		files := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-2], -1)
		if len(files) == 0 {
			t.Errorf("no file in %s", line)
		}
		for _, m := range files {
			if st, err := os.Stat(filepath.Join("../../..", m[1])); err != nil || st.IsDir() {
				t.Errorf("%s is no file of the repository", m[1])
			}
		}
	}
	if rows < 25 {
		t.Errorf("%d questions", rows)
	}
}

// Each room of the table is a folder.
func TestRooms(t *testing.T) {
	t.Parallel()
	rooms := map[string]bool{}
	for line := range strings.Lines(section(t, "The rooms")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		parent := ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			name := strings.TrimSuffix(m[1], "/")
			found := false
			// Names after the first one are short: beside it, or below what is above it.
			for dir := parent; ; dir = filepath.Dir(dir) {
				if st, err := os.Stat(filepath.Join("../../..", dir, name)); err == nil && st.IsDir() {
					rooms[filepath.ToSlash(filepath.Join(dir, name))], found = true, true
					break
				}
				if dir == "." || dir == "" {
					break
				}
			}
			if !found {
				t.Errorf("%s is no folder of the repository", m[1])
			}
			if parent == "" {
				parent = filepath.Dir(name)
			}
		}
	}
	if len(rooms) < 40 {
		t.Errorf("%d rooms", len(rooms))
	}
}

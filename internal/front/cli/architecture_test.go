package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each question leads to an existing file.
func TestWhereToLook(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## Where to look\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := 0
	for line := range strings.Lines(text) {
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

// The tables of packages name existing directories, and every internal package.
func TestPackageTables(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/design/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		parent := ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			name := strings.TrimSuffix(m[1], "/")
			found := false
			// Names after the first one are relative to its directory or a parent.
			for dir := parent; ; dir = filepath.Dir(dir) {
				if st, err := os.Stat(filepath.Join("../../..", dir, name)); err == nil && st.IsDir() {
					listed[filepath.ToSlash(filepath.Join(dir, name))], found = true, true
					break
				}
				if dir == "." || dir == "" {
					break
				}
			}
			if !found {
				t.Errorf("%s is no directory of the repository", m[1])
			}
			if parent == "" {
				parent = filepath.Dir(name)
			}
		}
	}
	for _, dir := range packages(t) {
		if strings.HasPrefix(dir, "internal/") && !listed[dir] && !strings.HasSuffix(dir, "test") {
			t.Errorf("%s is not in the table", dir)
		}
	}
}

// packages returns the directories with Go files of the product, relative to the root.
func packages(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			rel, err := filepath.Rel("../../..", filepath.Dir(path))
			if err == nil && !slices.Contains(dirs, filepath.ToSlash(rel)) {
				dirs = append(dirs, filepath.ToSlash(rel))
			}
			return err
		}
		return nil
	})
	if err != nil || len(dirs) < 50 {
		t.Fatalf("%d packages, %v", len(dirs), err)
	}
	return dirs
}

// Names of the code that the documents for contributors give are there: `package.Name`, and tests.
func TestNamesInDocuments(t *testing.T) {
	t.Parallel()
	sources := map[string]string{} // of a package's last name
	tests := ""
	err := filepath.WalkDir("../../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.HasSuffix(path, "_test.go") {
			tests += string(b)
		}
		sources[filepath.Base(filepath.Dir(path))] += string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	design, err := filepath.Glob("../../../docs/design/*.md")
	if err != nil || len(design) == 0 {
		t.Fatal("docs/design has no pages: ", err)
	}
	for _, doc := range append(design, "../../../ARCHITECTURE.md", "../../../CONTRIBUTING.md", "../../../THREAT_MODEL.md") {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`([a-z]+)\\.([A-Z][A-Za-z]+)`").FindAllStringSubmatch(string(b), -1) {
			found++
			if !regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|type |var |const |\t)` + m[2] + `\b`).MatchString(sources[m[1]]) {
				t.Errorf("%s names %s.%s, which is not there", doc, m[1], m[2])
			}
		}
		for _, m := range regexp.MustCompile("`(Test[A-Z][A-Za-z]+)`").FindAllStringSubmatch(string(b), -1) {
			found++
			if !strings.Contains(tests, "func "+m[1]+"(") {
				t.Errorf("%s names %s, which is not there", doc, m[1])
			}
		}
	}
	if found < 40 {
		t.Errorf("%d names were found", found)
	}
}

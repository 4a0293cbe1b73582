package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that the threat model or a page of docs names exists.
func TestThreatModelNamesTests(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	doc, err := os.ReadFile(root + "/THREAT_MODEL.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests bytes.Buffer
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		tests.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllSubmatch(doc, -1)
	for _, m := range named {
		if !bytes.Contains(tests.Bytes(), []byte("\nfunc "+string(m[1])+"(")) {
			t.Errorf("there is no test %s", m[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
	for path, text := range pages(t) {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(text, -1) {
			if !bytes.Contains(tests.Bytes(), []byte("\nfunc "+m[1]+"(")) {
				t.Errorf("%s names the test %s, which is not there", path, m[1])
			}
		}
	}
	if bytes.Contains(doc, []byte("@@")) {
		t.Error("there are placeholders left")
	}
}

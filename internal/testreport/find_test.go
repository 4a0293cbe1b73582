package testreport

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const small = `<testsuite name="s"><testcase classname="s" name="t"/></testsuite>`

func write(tb testing.TB, dir string, files map[string]string) {
	tb.Helper()
	for p, content := range files {
		full := filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

func rootOf(tb testing.TB, dir string) *os.Root {
	tb.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

// Only what the command wrote counts: a committed report would say what the agent likes.
// Links and pipes of an agent are neither followed nor waited for.
func TestFind(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	write(t, out, map[string]string{"secret/junit.xml": small})
	write(t, dir, map[string]string{
		"old/junit.xml": small, "again/report.xml": small, "node_modules/a/junit.xml": small, "pom.xml": small,
	})
	root := rootOf(t, dir)
	mark, err := MarkFiles(root)
	if err != nil || len(mark) != 2 {
		t.Fatalf("%v %v", mark, err)
	}
	write(t, dir, map[string]string{
		"again/report.xml": small, "junit.xml": small, "a/b/test-results/unit/results.xml": small,
		"target/surefire-reports/TEST-org.example.A.xml": small, "jest-results.json": `{"numTotalTests":0,"testResults":[]}`,
		"coverage/reports/report.xml": `<coverage/>`, "build/test-results/test/TEST-B.xml": small, "x.tap": "TAP version 13\n1..1\nok 1\n",
		"notes.xml": small, "node_modules/b/junit.xml": small,
	})
	if err := os.Symlink(filepath.Join(out, "secret"), filepath.Join(dir, "reports")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../old/junit.xml", filepath.Join(dir, "a/junit.xml")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "a/report.xml"), 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := Find(root, mark)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, f.Path)
	}
	want := "a/b/test-results/unit/results.xml again/report.xml build/test-results/test/TEST-B.xml jest-results.json junit.xml target/surefire-reports/TEST-org.example.A.xml x.tap"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	// A report that became a pipe after it was found.
	if err := os.Remove(filepath.Join(dir, "junit.xml")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "junit.xml"), 0o644); err != nil {
		t.Fatal(err)
	}
	left := int64(maxTotal)
	if _, err := readFile(root, ReportFile{Path: "junit.xml", Format: JUnit}, &left); !errors.Is(err, errNotRegular) {
		t.Errorf("got %v", err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := rootOf(t, dir)
	rep, err := Read(root, nil, strings.NewReader("all is well\n"))
	if rep != nil || err != nil {
		t.Errorf("%v %v", rep, err)
	}
	// Paths of the checkout are no part of a suite's name.
	jest := `{"numTotalTests":1,"testResults":[{"name":"` + dir + `/src/a.test.js","status":"passed","assertionResults":[{"title":"adds","status":"passed"}]}]}`
	rep, err = Read(root, nil, strings.NewReader("> my-app@1.0.0 test\n> jest --json\n\n"+jest+"\n"))
	if err != nil || rep.Tests[0].Suite != "src/a.test.js" {
		t.Errorf("%v %+v", err, rep)
	}
	// gotestsum prints and writes the same; a second runner is another matter.
	write(t, dir, map[string]string{"junit.xml": small, "broken/junit.xml": small[:40]})
	rep, err = Read(root, nil, strings.NewReader(`{"Action":"pass","Package":"s","Test":"t"}`+"\n"+`{"Action":"pass","Package":"s"}`))
	if err == nil || !strings.Contains(err.Error(), "broken/junit.xml") || len(rep.Tests) != 1 {
		t.Errorf("%v %+v", err, rep)
	}
	rep, _ = Read(root, nil, strings.NewReader("TAP version 13\n1..1\nnot ok 1 - other\n"))
	if c := rep.Counts(); c.Passed != 1 || c.Failed != 1 {
		t.Errorf("%+v", rep)
	}
}

package testreport

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// junitReader reads JUnit XML as pytest, surefire, jest-junit, gotestsum, node and others write it: nested testsuites
// with testcases, and in these failure, error, skipped, flakyFailure and rerunFailure.
type junitReader struct {
	rep    *Report
	suites []string // names of the open suites
	depth  int
	open   *Test
	in     string // the element of a case whose words are read
	words  strings.Builder
	errs   bool // the words are of an error of the whole suite
	anyXML bool
}

func parseJUnit(rep *Report, in io.Reader) error {
	// The decoder expands XML's five entities only: it reads no DTD.
	d := xml.NewDecoder(in)
	d.CharsetReader = charset
	j := &junitReader{rep: rep}
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			j.closeCase()
			return err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if j.depth++; j.depth > maxDepth {
				return fmt.Errorf("elements are nested more than %d deep", maxDepth)
			}
			j.start(tok)
		case xml.EndElement:
			j.depth--
			j.end(tok.Name.Local)
		case xml.CharData:
			if j.in != "" && j.words.Len() < 8*textBytes {
				j.words.Write(tok[:min(len(tok), 8*textBytes)])
			}
		}
	}
	j.closeCase()
	switch {
	case !j.anyXML:
		return errors.New("it contains no test suite")
	case j.depth != 0:
		return errors.New("it ends in the middle of an element")
	}
	return nil
}

func (j *junitReader) start(e xml.StartElement) {
	switch local := e.Name.Local; local {
	case "testsuites":
		j.anyXML = true
	case "testsuite":
		j.anyXML = true
		j.closeCase()
		j.suites = append(j.suites, name(attr(e, "name")))
	case "testcase":
		j.closeCase()
		j.anyXML = true
		j.open = j.testcase(e)
	case "failure", "error", "skipped", "flakyFailure", "flakyError", "rerunFailure", "rerunError":
		if j.open != nil {
			j.verdict(local, e)
		} else if local == "error" || local == "failure" {
			// The suite itself failed, before or after its tests.
			j.open = &Test{Suite: j.suite(), Name: wholeSuite, Status: workorder.TestFailed, Whole: true}
			j.errs = true
			j.verdict(local, e)
		}
	}
}

// testcase returns the test of an element, which passed unless a child element differs.
func (j *junitReader) testcase(e xml.StartElement) *Test {
	class, title := name(attr(e, "classname")), attr(e, "name")
	t := &Test{Suite: class, Name: title, Status: workorder.TestPassed}
	switch {
	case class == "test" && len(j.suites) > 0:
		t.Suite = j.suite() // node gives this class to all
	case class == "" || class == name(title) && j.suite() != "":
		t.Suite = j.suite() // jest-junit repeats the title in the class
	}
	if t.Suite == "" {
		t.Suite = name(attr(e, "file"))
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(attr(e, "time"), ",", ""), 64)
	if err == nil {
		t.Duration = seconds(f)
	}
	// GoogleTest, and JUnit 5's legacy writer.
	status, result := attr(e, "status"), attr(e, "result")
	if status == "notrun" || status == "disabled" || result == "suppressed" || result == "skipped" {
		t.Status = workorder.TestSkipped
	}
	// Runners write these for a suite that could not run.
	t.Whole = strings.TrimSpace(title) == "" || title == "initializationError" || // surefire
		attr(e, "classname") == "" && title == "TestMain" || // gotestsum
		title == class && title == j.suite() // vitest
	return t
}

func (j *junitReader) verdict(kind string, e xml.StartElement) {
	t := j.open
	message := attr(e, "message")
	switch kind {
	case "skipped":
		// node writes a failure beside the skip of a TODO, which does not count.
		if t.Status == workorder.TestPassed || attr(e, "type") == "todo" {
			t.Status = workorder.TestSkipped
		}
	case "flakyFailure", "flakyError":
		t.Flaky = true
		return
	case "rerunFailure", "rerunError":
		return
	default:
		if kind == "error" && message == "collection failure" && attr(e, "classname") == "" &&
			strings.TrimSpace(t.Suite) != "" && j.suite() == t.Suite {
			// pytest could not import a module; the case has the module's name.
			t.Suite, t.Name, t.Whole = t.Name, wholeSuite, true
			message = ""
		}
		if t.Status == workorder.TestFailed && t.Text != "" || t.Status == workorder.TestSkipped {
			return // the first failure of a test says it
		}
		t.Status = workorder.TestFailed
	}
	t.Text = message
	if t.Text == "Failed" { // gotestsum, for all
		t.Text = ""
	}
	j.in = kind
	j.words.Reset()
}

func (j *junitReader) end(local string) {
	if local == j.in {
		j.take()
	}
	switch local {
	case "testcase":
		j.closeCase()
	case "error", "failure":
		if j.errs {
			j.closeCase()
		}
	case "testsuite":
		j.closeCase()
		if n := len(j.suites); n > 0 {
			j.suites = j.suites[:n-1]
		}
	}
}

// take appends an element's text to its message, which it often repeats.
func (j *junitReader) take() {
	words := strings.TrimSpace(j.words.String())
	message := strings.TrimSpace(j.open.Text)
	switch {
	case message == "" || strings.Contains(words, message):
		j.open.Text = words
	default:
		j.open.Text = message + "\n" + words
	}
	j.in = ""
}

func (j *junitReader) closeCase() {
	if j.open == nil {
		return
	}
	if j.in != "" {
		j.take()
	}
	t := *j.open
	t.Whole = t.Whole && t.Status == workorder.TestFailed
	j.rep.add(t)
	j.open, j.errs = nil, false
}

// suite returns the path of the open suites. The outermost is the run if it contains others.
func (j *junitReader) suite() string {
	names := j.suites
	var out []string
	for _, n := range names {
		if n != "" {
			out = append(out, n)
		}
	}
	return texts.Short(strings.Join(out, " > "), maxName)
}

func attr(e xml.StartElement, key string) string {
	for _, a := range e.Attr {
		if a.Name.Local == key && a.Name.Space == "" {
			return a.Value
		}
	}
	return ""
}

// charset reads Latin-1 correctly, and all else as UTF-8: names matter less than verdicts.
func charset(label string, in io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "iso-8859-1", "latin1", "windows-1252", "us-ascii", "ascii":
		return &latin1{in: in}, nil
	case "utf-16", "utf-16le", "utf-16be", "utf-32":
		return nil, fmt.Errorf("it is in %s; write it as UTF-8", label)
	}
	return in, nil
}

type latin1 struct {
	in  io.Reader
	buf []byte
}

func (l *latin1) Read(p []byte) (int, error) {
	for len(l.buf) == 0 {
		var raw [1024]byte
		n, err := l.in.Read(raw[:])
		for _, b := range raw[:n] {
			l.buf = append(l.buf, string(rune(b))...)
		}
		if n == 0 && err != nil {
			return 0, err
		}
	}
	n := copy(p, l.buf)
	l.buf = l.buf[n:]
	return n, nil
}

package testreport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type jestSuite struct {
	Name             string `json:"name"`
	Status           string `json:"status"`
	Message          string `json:"message"`
	AssertionResults []struct {
		AncestorTitles  []string `json:"ancestorTitles"`
		Title           string   `json:"title"`
		FullName        string   `json:"fullName"`
		Status          string   `json:"status"`
		Duration        *float64 `json:"duration"` // milliseconds
		FailureMessages []string `json:"failureMessages"`
		RetryReasons    []string `json:"retryReasons"`
	} `json:"assertionResults"`
}

// jestStart is the first key of the document, by which it is found in other output.
var jestStart = lazyregexp.New(`\{\s*"(?:num[A-Z]\w+|testResults|success)"\s*:`)

func parseJest(rep *Report, in io.Reader) error {
	all, err := io.ReadAll(in)
	if err != nil && !errors.Is(err, errTooLarge) {
		return err
	}
	doc := all
	if !bytes.HasPrefix(bytes.TrimSpace(all), []byte("{")) || !json.Valid(all) {
		if at := jestStart.FindIndex(all); at != nil {
			doc = all[at[0]:]
		}
	}
	if e := jestDocument(rep, json.NewDecoder(bytes.NewReader(doc))); e != nil && err == nil {
		err = e
	}
	return err
}

// jestDocument reads the document piece by piece, so that a part gives its tests.
func jestDocument(rep *Report, d *json.Decoder) error {
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return errors.New("it contains no JSON document of jest or vitest")
	}
	found := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ended(err)
		}
		if key != "testResults" {
			var skip json.RawMessage
			if err := d.Decode(&skip); err != nil {
				return ended(err)
			}
			continue
		}
		found = true
		if tok, err := d.Token(); err != nil || tok != json.Delim('[') {
			return errors.New("testResults is no list")
		}
		for d.More() {
			var s jestSuite
			if err := d.Decode(&s); err != nil {
				return ended(err)
			}
			jestFile(rep, s)
		}
		if _, err := d.Token(); err != nil {
			return ended(err)
		}
	}
	if !found {
		return errors.New("it contains no testResults")
	}
	if _, err := d.Token(); err != nil {
		return ended(err)
	}
	return nil
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends in the middle of the document")
	}
	return fmt.Errorf("it is no JSON: %w", err)
}

func jestFile(rep *Report, s jestSuite) {
	failed := false
	for _, a := range s.AssertionResults {
		title := strings.Join(append(slices.Clip(a.AncestorTitles), a.Title), " > ")
		if a.Title == "" {
			title = a.FullName
		}
		t := Test{Suite: s.Name, Name: title, Flaky: len(a.RetryReasons) > 0 && a.Status == "passed"}
		if a.Duration != nil {
			t.Duration = seconds(*a.Duration / float64(time.Second/time.Millisecond))
		}
		switch a.Status {
		case "passed":
			t.Status = workorder.TestPassed
		case "pending", "skipped", "todo", "disabled":
			t.Status = workorder.TestSkipped
		default:
			failed = true
			t.Status, t.Text = workorder.TestFailed, strings.Join(a.FailureMessages, "\n")
		}
		rep.add(t)
	}
	if s.Status == "failed" && !failed {
		rep.add(Test{Suite: s.Name, Name: wholeSuite, Status: workorder.TestFailed, Text: s.Message, Whole: true})
	}
}

package testreport

import (
	"bytes"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var (
	headGo    = lazyregexp.New(`\{"(?:Time|Action|ImportPath)":"[^"\n]*"[^\n]*"(?:Action|Package)":"`)
	headXML   = lazyregexp.New(`<testsuites?[\s>/]`)
	headPoint = lazyregexp.New(`(?m)^[ \t]*(?:not )?ok[ \t]+\d+\b`)
	headTAP   = lazyregexp.New(`(?m)^(?:TAP version 1[34]|1\.\.\d+)[ \t\r]*(?:#.*)?$`)
	headJest  = lazyregexp.New(`"(?:numTotalTests|numFailedTestSuites|numTotalTestSuites|testResults)"\s*:`)
)

// Detect returns the format of a text by its beginning, which may include other output; None without a report.
func Detect(head []byte) Format {
	start := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case bytes.HasPrefix(start, []byte("<")):
		if headXML.Match(start) {
			return JUnit
		}
		return None
	case headGo.Match(head):
		return GoJSON
	case headJest.Match(head):
		return Jest
	case headTAP.Match(head) &&
		(headPoint.Match(head) || bytes.Contains(head, []byte("TAP version")) || bytes.Contains(head, []byte("Bail out!"))):
		return TAP
	}
	return None
}

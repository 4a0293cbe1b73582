package testreport

import (
	"bytes"
	"regexp"
)

var (
	headGo    = regexp.MustCompile(`\{"(?:Time|Action|ImportPath)":"[^"\n]*"[^\n]*"(?:Action|Package)":"`)
	headXML   = regexp.MustCompile(`<testsuites?[\s>/]`)
	headPoint = regexp.MustCompile(`(?m)^[ \t]*(?:not )?ok[ \t]+\d+\b`)
	headTAP   = regexp.MustCompile(`(?m)^(?:TAP version 1[34]|1\.\.\d+)[ \t\r]*(?:#.*)?$`)
	headJest  = regexp.MustCompile(`"(?:numTotalTests|numFailedTestSuites|numTotalTestSuites|testResults)"\s*:`)
)

// Detect says which format a text is, from its beginning. Other output may be
// mixed in; None means that nothing looks like a report.
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
	case headTAP.Match(head) && (headPoint.Match(head) || bytes.Contains(head, []byte("TAP version")) || bytes.Contains(head, []byte("Bail out!"))):
		return TAP
	}
	return None
}

package browse

import (
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Size is a window size in CSS pixels.
type Size struct {
	Width, Height int
	Phone         bool // touch input and a phone's layout
}

// Sizes returns the window sizes in which each page is visited.
func Sizes() []Size {
	return []Size{{Width: 1280, Height: 800}, {Width: 390, Height: 844, Phone: true}}
}

const (
	// maxPages bounds the pages with pictures: at two widths, two sides and the difference, each page has six.
	maxPages = 12
	// maxWalked bounds the pages of the video.
	maxWalked = 5
	// maxWidth bounds a picture, in pixels. A page without a phone layout is 980 wide on a phone.
	maxWidth = 2000
	// maxHeight bounds it too: reviewers do not look further than seven screens down.
	maxHeight = 6000
	// maxPicture and maxVideo bound the files, in bytes. The largest picture full of photographs has some 10 MB.
	maxPicture = 24 << 20
	maxVideo   = 24 << 20
	// maxNote and maxTitle bound a text in the result, in bytes. rawNote is larger, so that redaction sees complete secrets.
	maxNote  = 400
	maxTitle = 200
	rawNote  = 4 << 10
	// maxLine bounds an output line of the browser's side: all lists with rawNote per entry, doubled for JSON escapes.
	maxLine = 2 * 2 * (workorder.MaxPageNotes + 2) * rawNote
)

const (
	// gotoTime bounds the wait for a page's load event. Development servers build on request.
	gotoTime = 15 * time.Second
	// idleTime bounds the wait for later requests: pages that poll never become idle.
	idleTime  = 3 * time.Second
	shotTime  = 10 * time.Second
	pageTime  = gotoTime + idleTime + shotTime + 5*time.Second
	startTime = 30 * time.Second
	// visitTime bounds a whole visit: some ten times the duration for pages that load at once.
	visitTime = 4 * time.Minute
	// stillTime and scrollTime pace the video so that people can follow it.
	stillTime  = 700 * time.Millisecond
	scrollTime = 1200 * time.Millisecond
)

// Request is the input of the browser's side.
type Request struct {
	Origin string
	Paths  []string
	Dir    string
	Video  bool
	// Browser is the program; empty means the driver's default.
	Browser string
}

type message struct {
	View  *view  `json:"view,omitempty"`
	Video bool   `json:"video,omitempty"`
	Error string `json:"error,omitempty"`
}

// view is the browser's report on a page. Only its number identifies the page: it carries no file names.
type view struct {
	N       int      `json:"n"`
	Status  int      `json:"status"`
	Title   string   `json:"title"`
	Picture bool     `json:"picture"`
	Console []string `json:"console"`
	Failed  []string `json:"failed"`
	Error   string   `json:"error"`
}

const (
	pictureFile = "page-%d.png"
	videoFile   = "walk.webm"
)

// clean returns a text of a page as one line of bounded size, without invisible and bidirectional characters.
func clean(s string, most int) string {
	return text.Short(text.Words(text.Visible(s[:min(len(s), 4*rawNote)])), most)
}

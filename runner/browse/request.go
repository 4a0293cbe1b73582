package browse

import (
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Size is one of a window, in CSS pixels.
type Size struct {
	Width, Height int
	Phone         bool // touch, and the layout of a phone
}

// Sizes are the windows that each page is looked at in.
func Sizes() []Size {
	return []Size{{Width: 1280, Height: 800}, {Width: 390, Height: 844, Phone: true}}
}

const (
	// maxPages bounds the pages that pictures are taken of: at two widths, two sides and the difference, a page makes six.
	maxPages = 12
	// maxWalked bounds the pages of the video.
	maxWalked = 5
	// maxWidth bounds a picture, in pixels. A page that is made for no phone is 980 wide on one.
	maxWidth = 2000
	// maxHeight does, too: further than seven screens down nobody looks.
	maxHeight = 6000
	// maxPicture and maxVideo bound the files, in bytes. A picture of the largest size full of photographs has some 10 MB.
	maxPicture = 24 << 20
	maxVideo   = 24 << 20
	// maxNote and maxTitle bound a text in the result, in bytes; rawNote what the browser's side passes on of it, so that a secret
	// is whole when it is looked for.
	maxNote  = 400
	maxTitle = 200
	rawNote  = 4 << 10
	// maxLine bounds a line of the browser's side: each of the lists with rawNote each, twice for what JSON escapes.
	maxLine = 2 * 2 * (workorder.MaxPageNotes + 2) * rawNote
)

// Bounds of what is waited for in the browser.
const (
	// gotoTime bounds a page's load event. Development servers build on request.
	gotoTime = 15 * time.Second
	// idleTime is how long requests after that are waited for: pages that poll never rest.
	idleTime = 3 * time.Second
	// shotTime bounds one picture.
	shotTime = 10 * time.Second
	// pageTime bounds a page with all of that.
	pageTime = gotoTime + idleTime + shotTime + 5*time.Second
	// startTime bounds the start of the browser.
	startTime = 30 * time.Second
	// visitTime bounds all of a visit, for pages that load at once some ten times what it takes.
	visitTime = 4 * time.Minute
	// stillTime and scrollTime are the video's pace, for people to see something.
	stillTime  = 700 * time.Millisecond
	scrollTime = 1200 * time.Millisecond
)

// Request is what the browser's side is asked to do.
type Request struct {
	Origin string
	Paths  []string
	// Dir is its folder, where pictures and video go.
	Dir   string
	Video bool
	// Browser is the program; empty means the driver's own choice.
	Browser string
}

// told is a line of the browser's side.
type told struct {
	View  *view  `json:"view,omitempty"`
	Video bool   `json:"video,omitempty"`
	Error string `json:"error,omitempty"`
}

// view is what it saw of a page. Its number is all that says which: names of files are not told.
type view struct {
	N       int      `json:"n"`
	Status  int      `json:"status"`
	Title   string   `json:"title"`
	Picture bool     `json:"picture"`
	Console []string `json:"console"`
	Failed  []string `json:"failed"`
	Error   string   `json:"error"`
}

// pictureFile and videoFile are names in the browser's folder.
const (
	pictureFile = "page-%d.png"
	videoFile   = "walk.webm"
)

// clean is a text of a page in one line: without what is not seen or changes the order of others, bounded in bytes.
func clean(s string, most int) string {
	return text.Short(text.Words(text.Seen(s[:min(len(s), 4*rawNote)])), most)
}

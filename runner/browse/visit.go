package browse

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/playwright-community/playwright-go"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Visit is the browser's side. It reads a request and prints what it saw, a line for each page as soon as that is known: whatever
// ends it, what was seen before is told. It must not run as root, and never downloads anything.
func Visit(in io.Reader, out io.Writer) error {
	if os.Geteuid() == 0 {
		return errors.New("browse: a browser is not started as root")
	}
	var req Request
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return fmt.Errorf("browse: read the request: %w", err)
	}
	b := &visit{Request: req, out: json.NewEncoder(out)}
	if err := b.run(); err != nil {
		return b.out.Encode(told{Error: bounded(err.Error())})
	}
	return nil
}

// visit is one run of a browser.
type visit struct {
	Request
	out     *json.Encoder
	browser playwright.Browser
}

func (v *visit) run() (err error) {
	pw, err := playwright.Run(&playwright.RunOptions{SkipInstallBrowsers: true, Stderr: os.Stderr})
	if err != nil {
		return fmt.Errorf("start the browser's driver: %w", err)
	}
	defer func() { err = errors.Join(err, pw.Stop()) }()
	launch := playwright.BrowserTypeLaunchOptions{Timeout: ms(startTime), Args: []string{"--disable-gpu", "--hide-scrollbars", quiet}}
	if v.Browser != "" {
		launch.ExecutablePath = &v.Browser
	}
	if v.browser, err = pw.Chromium.Launch(launch); err != nil {
		return fmt.Errorf("start the browser: %w", err)
	}
	defer func() { err = errors.Join(err, v.browser.Close()) }()
	for w, size := range Sizes() {
		if err := v.window(w, size); err != nil {
			return err
		}
	}
	if v.Video {
		return v.walk()
	}
	return nil
}

// quiet keeps the browser from asking for its own updates, which the network policy would refuse and report.
const quiet = "--host-resolver-rules=MAP clients2.google.com ~NOTFOUND,MAP update.googleapis.com ~NOTFOUND,MAP start.duckduckgo.com ~NOTFOUND"

func ms(d time.Duration) *float64 { return new(float64(d.Milliseconds())) }

// options are those of a window in which two visits of one page give one picture, as far as we can.
func options(size Size) playwright.BrowserNewContextOptions {
	return playwright.BrowserNewContextOptions{
		Viewport: &playwright.Size{Width: size.Width, Height: size.Height}, DeviceScaleFactor: new(1.0), IsMobile: new(size.Phone), HasTouch: new(size.Phone),
		AcceptDownloads: new(false), ServiceWorkers: playwright.ServiceWorkerPolicyBlock, ColorScheme: playwright.ColorSchemeLight,
		ReducedMotion: playwright.ReducedMotionReduce, Locale: new("en-US"), TimezoneId: new("UTC"),
	}
}

// window looks at every page in a window of one size.
func (v *visit) window(w int, size Size) error {
	c, err := v.browser.NewContext(options(size))
	if err != nil {
		return fmt.Errorf("open a window: %w", err)
	}
	defer func() { _ = c.Close() }() // it was only looked at
	for p, path := range v.Paths {
		seen := view{N: p*len(Sizes()) + w}
		v.page(c, path, &seen)
		if err := v.out.Encode(told{View: &seen}); err != nil {
			return fmt.Errorf("tell of %s: %w", path, err)
		}
	}
	return nil
}

// page looks at one page.
func (v *visit) page(c playwright.BrowserContext, path string, seen *view) {
	p, err := c.NewPage()
	if err != nil {
		seen.Error = why(err)
		return
	}
	// Some of the driver's calls have no limit of their own; closing the page ends them.
	over := time.AfterFunc(pageTime, func() { _ = p.Close() })
	defer func() {
		over.Stop()
		_ = p.Close() // what it was for has been seen
	}()
	// A dialog that nobody answers holds the page.
	p.OnDialog(func(d playwright.Dialog) { go func() { _ = d.Dismiss() }() })
	n := &notes{origin: v.Origin}
	n.listen(p)
	defer n.put(seen)
	_, err = p.Goto(v.Origin+path, playwright.PageGotoOptions{Timeout: ms(gotoTime)})
	if err != nil {
		seen.Error = why(err)
		if !errors.Is(err, playwright.ErrTimeout) || p.URL() == "about:blank" {
			return
		}
		// A page that never ends loading may still have something to show.
	}
	// A page that polls never rests: the picture is taken anyway.
	_ = p.WaitForLoadState(playwright.PageWaitForLoadStateOptions{State: playwright.LoadStateNetworkidle, Timeout: ms(idleTime)})
	_, err = p.Screenshot(playwright.PageScreenshotOptions{
		Path: new(filepath.Join(v.Dir, fmt.Sprintf(pictureFile, seen.N))), FullPage: new(true), Timeout: ms(shotTime),
		Clip: &playwright.Rect{Width: maxWidth, Height: maxHeight}, Animations: playwright.ScreenshotAnimationsDisabled,
	})
	if seen.Picture = err == nil; err != nil && seen.Error == "" {
		seen.Error = "no picture: " + why(err)
	}
	if title, err := p.Title(); err == nil {
		seen.Title = bounded(title)
	}
}

// walk records a video of a walk over the pages. It is a window of its own: a picture of a full page during a recording leaves shrunken
// frames in it.
func (v *visit) walk() error {
	desk := Sizes()[0]
	o := options(desk)
	o.ReducedMotion = playwright.ReducedMotionNoPreference
	o.RecordVideo = &playwright.RecordVideo{Dir: filepath.Join(v.Dir, "video"), Size: &playwright.Size{Width: desk.Width, Height: desk.Height}}
	c, err := v.browser.NewContext(o)
	if err != nil {
		return fmt.Errorf("record a video: %w", err)
	}
	p, err := c.NewPage()
	if err != nil {
		return errors.Join(fmt.Errorf("record a video: %w", err), c.Close())
	}
	for _, path := range v.Paths[:min(len(v.Paths), maxWalked)] {
		if _, err := p.Goto(v.Origin+path, playwright.PageGotoOptions{Timeout: ms(gotoTime)}); err != nil {
			continue // its own view says why
		}
		time.Sleep(stillTime)
		// A page may make of it what it likes: a video that stands still says so.
		_, _ = p.Evaluate(`() => window.scrollTo({top: document.documentElement.scrollHeight, behavior: "smooth"})`)
		time.Sleep(scrollTime)
	}
	// Closing writes the end of the file.
	if err := c.Close(); err != nil {
		return fmt.Errorf("record a video: %w", err)
	}
	path, err := p.Video().Path()
	if err != nil {
		return fmt.Errorf("record a video: %w", err)
	}
	if err := os.Rename(path, filepath.Join(v.Dir, videoFile)); err != nil {
		return fmt.Errorf("record a video: %w", err)
	}
	return v.out.Encode(told{Video: true})
}

// notes collects what went wrong on a page. Its listeners are called by the driver's goroutine.
type notes struct {
	origin string

	mu              sync.Mutex
	status          int // of the page itself; 0 means no answer
	console, failed []string
}

func (n *notes) listen(p playwright.Page) {
	p.OnConsole(func(m playwright.ConsoleMessage) {
		t, text := m.Type(), m.Text()
		why, load := strings.CutPrefix(text, "Failed to load resource: ")
		switch {
		case load && strings.HasPrefix(why, "net::"):
			// The driver does not tell of each request that never got an answer.
			if l := m.Location(); l != nil {
				n.unanswered(n.short(l.URL), why)
			}
		case load: // an answer with 400 or more is in the other list already
		case t == "error" || t == "warning":
			n.add(&n.console, t+": "+text)
		}
	})
	p.OnPageError(func(err error) { n.add(&n.console, "uncaught: "+strings.TrimPrefix(err.Error(), "playwright: ")) })
	p.OnRequestFailed(func(r playwright.Request) {
		why := "failed"
		if err := r.Failure(); err != nil {
			why = err.Error()
		}
		n.add(&n.failed, fmt.Sprintf("%s %s: %s", r.Method(), n.short(r.URL()), why))
	})
	p.OnResponse(func(r playwright.Response) {
		if r.Request().IsNavigationRequest() && r.Frame() == p.MainFrame() {
			// An answer without a body and with 400 or more is an error to the browser, which then tells no status.
			n.answered(r.Status())
		}
		if r.Status() >= 400 {
			n.add(&n.failed, fmt.Sprintf("%s %s: %d", r.Request().Method(), n.short(r.URL()), r.Status()))
		}
	})
}

func (n *notes) answered(status int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status = status
}

// short is a URL without the server's origin, whose port says nothing.
func (n *notes) short(url string) string {
	if rest, ok := strings.CutPrefix(url, n.origin); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return url
}

// unanswered adds a request that is not in the list of those that failed.
func (n *notes) unanswered(url, why string) {
	n.mu.Lock()
	known := slices.ContainsFunc(n.failed, func(s string) bool { return strings.Contains(s, " "+url+": ") })
	n.mu.Unlock()
	if !known {
		n.add(&n.failed, "GET "+url+": "+why)
	}
}

// add adds what is not there yet: a loop says the same a thousand times.
func (n *notes) add(list *[]string, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text = bounded(text)
	if len(*list) < workorder.MaxPageNotes && !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

func (n *notes) put(seen *view) {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen.Status, seen.Console, seen.Failed = n.status, n.console, n.failed
}

// why is an error of the driver's without its own words around it.
func why(err error) string {
	s := err.Error()
	if e, ok := errors.AsType[*playwright.Error](err); ok {
		s = e.Message
	}
	s, _, _ = strings.Cut(s, "\nCall log:")
	return bounded(strings.TrimPrefix(s, "playwright: "))
}

func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), rawNote)], "") }

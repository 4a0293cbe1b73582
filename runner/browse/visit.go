// Package browse takes screenshots of the project's development server before and after the task's commits. See docs/design/pictures.md.
//
// The server runs as user sandbox and the browser as a separate user. Root takes only files of bounded size from the browser's directory,
// under names of its own, without following links. Browser.Visit is root's side of the browser; Visit is the browser's side.
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

// Visit is the browser's side: it reads a request and prints one line per page as soon as the page is done. It must not
// run as root.
func Visit(in io.Reader, out io.Writer) error {
	if os.Geteuid() == 0 {
		return errors.New("browse: refusing to start a browser as root")
	}
	var req Request
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return fmt.Errorf("browse: read the request: %w", err)
	}
	b := &visit{Request: req, out: json.NewEncoder(out)}
	if err := b.run(); err != nil {
		return b.out.Encode(message{Error: bounded(err.Error())})
	}
	return nil
}

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

// quiet keeps the browser from requesting its own updates, which the network policy would refuse and report.
const quiet = "--host-resolver-rules=MAP clients2.google.com ~NOTFOUND,MAP update.googleapis.com ~NOTFOUND,MAP start.duckduckgo.com " +
	"~NOTFOUND"

func ms(d time.Duration) *float64 { return new(float64(d.Milliseconds())) }

// options configures a window so that, as far as possible, two visits of a page give identical pictures.
func options(size Size) playwright.BrowserNewContextOptions {
	return playwright.BrowserNewContextOptions{
		Viewport: &playwright.Size{Width: size.Width, Height: size.Height}, DeviceScaleFactor: new(1.0), IsMobile: new(size.Phone),
		HasTouch: new(size.Phone), AcceptDownloads: new(false), ServiceWorkers: playwright.ServiceWorkerPolicyBlock,
		ColorScheme: playwright.ColorSchemeLight, ReducedMotion: playwright.ReducedMotionReduce, Locale: new("en-US"), TimezoneId: new("UTC"),
	}
}

func (v *visit) window(w int, size Size) error {
	c, err := v.browser.NewContext(options(size))
	if err != nil {
		return fmt.Errorf("open a window: %w", err)
	}
	defer func() { _ = c.Close() }() // read only
	for p, path := range v.Paths {
		seen := view{N: p*len(Sizes()) + w}
		v.page(c, path, &seen)
		if err := v.out.Encode(message{View: &seen}); err != nil {
			return fmt.Errorf("report %s: %w", path, err)
		}
	}
	return nil
}

func (v *visit) page(c playwright.BrowserContext, path string, seen *view) {
	p, err := c.NewPage()
	if err != nil {
		seen.Error = why(err)
		return
	}
	// Some calls of the driver have no timeout; closing the page ends them.
	over := time.AfterFunc(pageTime, func() { _ = p.Close() })
	defer func() {
		over.Stop()
		_ = p.Close() // the page has served its purpose
	}()
	// An unanswered dialog blocks the page.
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
		// A page that never finishes loading may still show something.
	}
	// A page that polls never becomes idle: take the picture anyway.
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

// walk records a video in a separate window: a full-page picture during a recording leaves shrunken frames.
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
			continue // its own view reports the reason
		}
		time.Sleep(stillTime)
		// If this fails, the video does not scroll.
		_, _ = p.Evaluate(`() => window.scrollTo({top: document.documentElement.scrollHeight, behavior: "smooth"})`)
		time.Sleep(scrollTime)
	}
	// Close writes the end of the file.
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
	return v.out.Encode(message{Video: true})
}

type notes struct {
	origin string

	mu              sync.Mutex
	status          int // status of the page itself; 0 if there was no answer
	console, failed []string
}

func (n *notes) listen(p playwright.Page) {
	p.OnConsole(func(m playwright.ConsoleMessage) {
		t, text := m.Type(), m.Text()
		why, load := strings.CutPrefix(text, "Failed to load resource: ")
		switch {
		case load && strings.HasPrefix(why, "net::"):
			// The driver does not report every request without an answer.
			if l := m.Location(); l != nil {
				n.unanswered(n.short(l.URL), why)
			}
		case load: // the other list already has answers of 400 or more
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
			// The browser reports an answer of 400 or more without a body as an error, without its status.
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

// short returns a URL without the server's origin, whose port is meaningless.
func (n *notes) short(url string) string {
	if rest, ok := strings.CutPrefix(url, n.origin); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return url
}

// unanswered adds a request that is not in the list of failed ones.
func (n *notes) unanswered(url, why string) {
	n.mu.Lock()
	known := slices.ContainsFunc(n.failed, func(s string) bool { return strings.Contains(s, " "+url+": ") })
	n.mu.Unlock()
	if !known {
		n.add(&n.failed, "GET "+url+": "+why)
	}
}

// add adds a text once: a loop repeats the same error a thousand times.
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

// why returns the driver's error without the driver's own wrapping.
func why(err error) string {
	s := err.Error()
	if e, ok := errors.AsType[*playwright.Error](err); ok {
		s = e.Message
	}
	s, _, _ = strings.Cut(s, "\nCall log:")
	return bounded(strings.TrimPrefix(s, "playwright: "))
}

func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), rawNote)], "") }

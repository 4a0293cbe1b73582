package prover

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/hardening"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/runner/browse"
	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Paths of the runner's own browser in the image, which the user sandbox cannot write.
const (
	browserUser    = "browser"
	browserProgram = "/usr/local/bin/chromium"
	browserTools   = "/opt/playwright/runner" // of the driver: ffmpeg under the names that it knows
	browserDriver  = "/opt/playwright/driver"
	browserNode    = "/usr/local/bin/node"
)

// look views the development server of both sides of a proof with a browser.
type look struct {
	dev     *workorder.Dev
	shell   func(ctx context.Context, c proof.CommandLine) runner.ShellResult
	cfg     runner.Config
	browser browse.Browser
	video   string
}

func newLook(cfg runner.Config, shell func(ctx context.Context, c proof.CommandLine) runner.ShellResult) *look {
	return &look{
		dev: cfg.Order.Dev, shell: shell, cfg: cfg,
		browser: browse.Browser{
			Argv: []string{"/proc/self/exe", "browse"}, Dir: filepath.Join(filepath.Dir(cfg.OutDir), "browse"), OutDir: cfg.OutDir,
			Redact: cfg.Redact, Program: browserProgram,
			Env: []string{
				"PLAYWRIGHT_DRIVER_PATH=" + browserDriver, "PLAYWRIGHT_BROWSERS_PATH=" + browserTools, "PLAYWRIGHT_NODEJS_PATH=" + browserNode,
				"PLAYWRIGHT_SKIP_BROWSER_GC=1", "PLAYWRIGHT_SKIP_VALIDATE_HOST_REQUIREMENTS=1",
			},
		},
	}
}

// visit starts the server of a side, views its pages and stops it.
func (l *look) visit(ctx context.Context, s proof.Site) ([]proof.View, error) {
	var err error
	if l.browser.User, err = hardening.User(browserUser, s.User.Cgroup); err != nil {
		return nil, err
	}
	l.browser.User.Namespace = s.User.Namespace
	if _, err := os.Stat(browserProgram); err != nil {
		return nil, fmt.Errorf("this image has no browser: %w", err)
	}
	began := time.Now()
	server, err := browse.Serve(ctx, l.dev, func(ctx context.Context) browse.Ended {
		env := append(slices.Clip(s.Env), "PORT="+strconv.Itoa(l.dev.Port))
		r := l.shell(ctx, proof.CommandLine{Name: "dev " + s.Side, Run: l.dev.Command, Dir: s.Dir, Env: env, User: s.User, Log: s.Log})
		return browse.Ended{ExitCode: r.ExitCode, Tail: r.Tail, Err: r.Err}
	})
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, s.Log)
	}
	defer server.Stop()
	l.say("%s: the development server is ready after %.1f s", s.Side, time.Since(began).Seconds())
	l.browser.Tell = func(v browse.View) { l.say("%s", viewed(s.Side, v)) }
	seen, err := l.browser.Visit(ctx, server.Origin, s.Side, l.pages(), s.Side == "head")
	if seen.Video != "" {
		l.video = seen.Video
	}
	views := make([]proof.View, 0, len(seen.Views))
	for _, v := range seen.Views {
		views = append(views, proof.View(v))
	}
	return views, err
}

// say emits a progress event of the step, like the proof itself.
func (l *look) say(format string, args ...any) {
	l.cfg.Emit(workorder.Event{Type: workorder.EventOutput, Name: "proof", Text: fmt.Sprintf(format, args...)})
}

// viewed describes one viewed page.
func viewed(side string, v browse.View) string {
	text := fmt.Sprintf("%s: %s at %d px", side, v.Path, v.Width)
	switch {
	case v.Seen.Error != "":
		text += ": " + v.Seen.Error
	case v.Seen.Status > 0:
		text += fmt.Sprintf(": HTTP %d", v.Seen.Status)
	}
	return text
}

func (l *look) pages() []string {
	switch {
	case len(l.dev.Pages) > 0:
		return l.dev.Pages
	case l.dev.ReadyPath != "":
		return []string{l.dev.ReadyPath}
	}
	return []string{"/"}
}

// compare compares the pictures of both sides and lists all of them.
func (l *look) compare(ctx context.Context, p *workorder.Proof) []workorder.Evidence {
	if err := l.browser.CompareAll(ctx, p.Pages); err != nil {
		p.Reasons = p.Reasons.And(workorder.ReasonPages, "%v", err)
	}
	return browse.Evidence(p.Pages, l.video)
}

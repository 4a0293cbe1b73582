// Package report renders the outcome of a task as the body of its pull request and as one HTML file, both from one model.
//
// All texts are untrusted: they lose control and bidirectional characters, are bounded, and are escaped where they are written. Facts that
// the runner proved come before claims of the agent. The output depends on the data only.
package report

import (
	"crypto/sha256"
	_ "embed" // the template and its style
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// inHTML bounds the file: a hostile result stays below some 20 MB without pictures.
var inHTML = bounds{text: 30_000, line: 400, items: 200, inner: workorder.MaxTestChanges, pics: 24}

//go:embed report.css
var style string

//go:embed report.tmpl
var layout string

// policy lets the file load and run nothing; only the style with this hash is allowed.
func policy() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; img-src data:; media-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"
}

// view is the page with HTML's additions.
type view struct {
	*page
	Style  template.CSS
	Policy string
	Tiles  []tile
	embed  *embedder
}

type tile struct {
	Name, Value string
	Tone        tone
}

// HTML writes the report as one file without network and script. Pictures and short videos of Data.Files are embedded.
func HTML(d Data, w io.Writer) error {
	p := build(d, inHTML)
	v := &view{page: p, Style: template.CSS(style), Policy: policy(), Tiles: tiles(d, p), embed: &embedder{files: d.Files, room: maxEmbedded}}
	t, err := template.New("report").Funcs(template.FuncMap{
		"num":    func(n int) string { return number(int64(n)) },
		"num64":  number,
		"plural": plural,
		"times":  times,
		"lines":  lines,
		"src":    v.src,
		"href":   href,
		"narrow": func(p picture) bool { return len(p.Shots) > 0 && p.Shots[0].Width > 0 && p.Shots[0].Width <= maxNarrow },
		"id":     func(i, j int) string { return fmt.Sprintf("shot-%d-%d", i, j) },
		"paras":  func(s string) []string { return strings.Split(s, "\n\n") },
	}).Parse(layout)
	if err != nil {
		return fmt.Errorf("write the HTML report: read its template: %w", err)
	}
	if err := t.Execute(w, v); err != nil {
		return fmt.Errorf("write the HTML report: %w", err)
	}
	return nil
}

// maxNarrow is the width of a page in a phone's window, in pixels.
const maxNarrow = 600

// src returns a picture or video as a data address: base64 of a known format.
func (v *view) src(m media) template.URL { return template.URL(v.embed.dataURI(m.Path, m.Video)) }

// href returns the address of a file of evidence: on the forge, or beside the report.
func href(m media) template.URL {
	switch {
	case m.URL != "":
		return template.URL(m.URL) // checked by webAddress
	case m.Beside != "":
		return template.URL(m.Beside)
	case m.Path != "":
		return template.URL(pathURL(m.Path))
	}
	return ""
}

// tiles are the most important numbers.
func tiles(d Data, p *page) []tile {
	r := d.Result
	if r == nil {
		return nil
	}
	passed, all, tests := tally(r)
	ts := []tile{}
	green := good
	if n := p.Alarms.Len() + p.Grave.Len(); n > 0 {
		ts = append(ts, tile{"Look closely", number(int64(n)), warn})
		green = calm // nothing is green beside a flag
	}
	switch {
	case all == 0:
		ts = append(ts, tile{"Checks", "none", warn})
	case passed == all:
		ts = append(ts, tile{"Checks pass", fmt.Sprintf("%d / %d", passed, all), green})
	default:
		ts = append(ts, tile{"Checks pass", fmt.Sprintf("%d / %d", passed, all), bad})
	}
	for _, t := range []struct {
		is   workorder.Transition
		name string
		tone tone
	}{
		{workorder.TransitionBroken, "Tests broken", bad},
		{workorder.TransitionFixed, "Tests fixed", green},
		{workorder.TransitionNewPasses, "Tests new", green},
	} {
		if n := tests[t.is]; n > 0 {
			ts = append(ts, tile{t.name, number(int64(n)), t.tone})
		}
	}
	ts = append(ts, tile{"Commits", number(int64(len(r.Commits))), calm}, tile{"Time", took(r.DurationMS), calm})
	cost := "unknown"
	switch c := r.Usage.CostUSD; {
	case c != nil:
		cost = usd(*c)
	case noAgent(r):
		cost = "none"
	}
	ts = append(ts, tile{"Cost", cost, calm})
	if all := spent(r); all != "" {
		ts = append(ts, tile{"Cost of the task", all, calm})
	}
	return ts
}

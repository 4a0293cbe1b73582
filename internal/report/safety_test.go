package report

import (
	"bytes"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	gmhtml "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var (
	// acted is what GitHub makes something of in text: a mention, a reference, a link, an emoji by name,
	// an alert or box, the id of a commit.
	acted = regexp.MustCompile(`(?i)@[0-9a-z]|#[0-9]|\bgh-[0-9]|://|\bwww\.|:[0-9a-z_+-]+:|\[[!x ^]|\b[0-9a-f]{7,}\b`)
	// actedRaw is what it makes something of where the raw body is a commit's message.
	actedRaw = regexp.MustCompile(`(?i)@[0-9a-z]|(^|[^0-9a-z/])(#|gh-)[0-9]`)
	known    = regexp.MustCompile(`^https://(github|forge|x)\.example/`) // what the samples' functions make
	ours     = regexp.MustCompile(`href="[^"]*"|src="[^"]*"`)
	// tagsOfMarkdown are those that we write, and those that goldmark makes of our Markdown.
	tagsOfMarkdown = strings.Fields("html head body p blockquote strong em h3 table thead tbody tr th td ul li details summary sub " +
		"code pre br a img span")
	// alerts are the lines that we begin a warning with.
	alerts = strings.NewReplacer("[!CAUTION]", "", "[!WARNING]", "")
)

// safeMarkdown renders a body with an independent implementation and looks at what came of it.
func safeMarkdown(t *testing.T, body string) {
	t.Helper()
	if n := utf8.RuneCountInString(body); n > maxMarkdown || !utf8.ValidString(body) {
		t.Errorf("%d characters, valid: %v", n, utf8.ValidString(body))
	}
	if i := strings.IndexFunc(body, func(r rune) bool { return r != '\n' && r != '\ufe0f' && text.IsInvisible(r) }); i >= 0 {
		t.Errorf("an unseen character at %d: %q", i, body[i:min(i+40, len(body))])
	}
	if m := actedRaw.FindString(ours.ReplaceAllString(body, "")); m != "" {
		t.Errorf("the raw body has %q", m)
	}
	var out bytes.Buffer
	gm := goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote), goldmark.WithRendererOptions(gmhtml.WithUnsafe(),
		gmhtml.WithHardWraps()))
	if err := gm.Convert([]byte(body), &out); err != nil {
		t.Fatal(err)
	}
	balanced(t, out.String())
	doc, err := html.Parse(&out)
	if err != nil {
		t.Fatal(err)
	}
	for n := range doc.Descendants() {
		switch n.Type {
		case html.CommentNode:
			t.Errorf("a comment: %q", n.Data)
		case html.ElementNode:
			markdownElement(t, n)
		case html.TextNode:
			if within(n, "code", "pre", "a") {
				continue
			}
			if m := acted.FindString(alerts.Replace(n.Data)); m != "" {
				t.Errorf("GitHub would act on %q in %.200q", m, n.Data)
			}
		}
	}
}

func markdownElement(t *testing.T, n *html.Node) {
	t.Helper()
	if !slices.Contains(tagsOfMarkdown, n.Data) {
		t.Errorf("an element <%s>", n.Data)
	}
	for _, a := range n.Attr {
		switch n.Data + " " + a.Key {
		case "a href", "img src":
			if !known.MatchString(a.Val) {
				t.Errorf("<%s> leads to %q", n.Data, a.Val)
			}
		case "img alt", "img width", "th style", "td style", "th align", "td align":
		default:
			t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
		}
	}
	if n.Data == "h3" && !slices.Contains([]string{
		"Proof", "Feedback", "Pictures", "Runs on your machine or CI", "Changes",
		"Refused",
	}, n.FirstChild.Data) {
		t.Errorf("a heading %q", n.FirstChild.Data)
	}
}

// balanced looks at the tags as they stand, which a parser of HTML would mend.
func balanced(t *testing.T, s string) {
	t.Helper()
	depth := 0
	z := html.NewTokenizer(strings.NewReader(s))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if depth != 0 {
				t.Errorf("%d folds are left open", depth)
			}
			return
		case html.StartTagToken:
			if name, _ := z.TagName(); string(name) == "details" {
				if depth++; depth > 1 {
					t.Error("a fold in a fold: we write none")
				}
			}
		case html.EndTagToken:
			if name, _ := z.TagName(); string(name) == "details" {
				if depth--; depth < 0 {
					t.Error("a fold ends that was not open")
				}
			}
		}
	}
}

func within(n *html.Node, names ...string) bool {
	for p := range n.Ancestors() {
		if slices.Contains(names, p.Data) {
			return true
		}
	}
	return false
}

// tagsOfHTML and attributes are those of the template.
var (
	tagsOfHTML = strings.Fields("html head body meta title style main header p h1 h2 h3 div strong span ul ol li b section a details " +
		"summary blockquote code small article pre figure figcaption img video table thead tbody tr th td svg rect dl dt dd footer br ins del")
	attributes = strings.Fields("lang charset http-equiv content name class href rel id src alt width height controls preload open " +
		"viewBox preserveAspectRatio aria-hidden x rx")
)

// safeHTML parses a report as a browser would and looks for anything that we did not write.
func safeHTML(t *testing.T, s string) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r != '\n' && r != '\ufe0f' && text.IsInvisible(r) }); i >= 0 {
		t.Errorf("an unseen character at %d: %q", i, s[i:min(i+40, len(s))])
	}
	csp, styles := "", 0
	for n := range doc.Descendants() {
		if n.Type == html.CommentNode {
			t.Errorf("a comment: %q", n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(tagsOfHTML, n.Data) {
			t.Errorf("an element <%s>", n.Data)
		}
		if n.Data == "style" {
			styles++
			if n.FirstChild.Data != style {
				t.Error("the style is not the one of the hash")
			}
		}
		for _, a := range n.Attr {
			if !slices.Contains(attributes, a.Key) {
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			}
			if a.Key == "content" && strings.HasPrefix(a.Val, "default-src") {
				csp = a.Val
			}
			htmlAddress(t, n, a)
		}
	}
	if styles != 1 || csp != policy() || !strings.HasPrefix(csp, "default-src 'none'; ") || strings.Contains(csp, "unsafe") ||
		strings.Contains(csp, "script") || strings.Contains(csp, "http") {
		t.Errorf("%d styles, policy %q", styles, csp)
	}
}

func htmlAddress(t *testing.T, n *html.Node, a html.Attribute) {
	t.Helper()
	ok := true
	switch a.Key {
	case "src":
		ok = strings.HasPrefix(a.Val, "data:image/") || strings.HasPrefix(a.Val, "data:video/")
	case "href":
		ok = strings.HasPrefix(a.Val, "https://") || strings.HasPrefix(a.Val, "#") || strings.HasPrefix(a.Val, "./")
	}
	if !ok {
		t.Errorf("<%s> loads or leads to %.100q", n.Data, a.Val)
	}
}

// pieces are what syntax is made of.
var pieces = []string{
	"</details>", "<details>", "<summary>", "<script>alert(1)</script>", "<!-- ", "-->", "<![CDATA[", "<?php ", "@user",
	"x@user.example", "@org/team", "#1", "GH-1", "org/repo#1",
	"https://evil.example", "www.evil.example", "[a](https://evil.example)", "![a](https://evil.example)",
	"[a]: https://evil.example\n[a]", "<https://evil.example>", "`", "``` \n", "~~~", "```\n</details>",
	"# h", "h\n===", "h\n---", "- [ ] x", "1. x\n2. y", "> q", "[!NOTE]", "| a | b |\n|---|---|\n", "a|b", "\\", "\\`", "`|`", "$x$",
	"$$x$$", ":+1:", "    code", "\tcode", "&#64;user", "&lt;b&gt;", "&commat;user", "\u202eabc", "\x1b[31m",
	"\u2028", "\xff", "[^1]: x", "[^1]", "0123456789abcdef0123456789abcdef01234567", "*a* **b** __c__ ~~d~~", "mailto:a@b.example",
	"xmpp:a@b.example", "</pre>", "</code>", "</a>", "\"><img src=x>", "javascript:alert(1)", "{{.}}", "\n\n", "+ x", "= x", "<b\n>",
	"a\u200bb", "@\u200duser", "/@x", "_@x", "-@x", "a`@x", "", " ", "*", "**",
}

// FuzzReport puts the same bytes in every place that an agent can write to, so that pieces of
// different places can also work together.
func FuzzReport(f *testing.F) {
	for _, s := range pieces {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) { safe(t, a, b) })
}

func safe(t *testing.T, a, b string) {
	t.Helper()
	d := everywhere(a, b)
	safeMarkdown(t, Markdown(d))
	for i := range d.Result.Review {
		safeMarkdown(t, Reply(&d.Result.Review[i], d.Result, d.CommitURL))
	}
	safeMarkdown(t, Replies(d.Result.Review, d.Result, d.CommitURL))
	var out bytes.Buffer
	if err := HTML(d, &out); err != nil {
		t.Fatal(err)
	}
	safeHTML(t, out.String())
}

// Pieces that are harmless alone can be syntax together. REPORT_ROUNDS makes it a longer search.
func TestPiecesTogether(t *testing.T) {
	t.Parallel()
	rounds, seed := 150, uint64(1)
	if testing.Short() {
		rounds = 15 // with the race detector, which has nothing to find here and makes it slow
	}
	if n, err := strconv.Atoi(os.Getenv("REPORT_ROUNDS")); err == nil {
		rounds, seed = n, rand.Uint64()
	}
	r := rand.New(rand.NewPCG(seed, 2))
	join := func() string {
		var b strings.Builder
		for range 1 + r.IntN(6) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	for range rounds {
		a, b := join(), join()
		if safe(t, a, b); t.Failed() {
			t.Fatalf("of %q and %q", a, b)
		}
	}
}

func everywhere(a, b string) Data {
	return Data{
		Result: &workorder.Result{
			TaskID: a, Project: b, Status: workorder.StatusFailed, Reasons: workorder.Because(workorder.ReasonCode(b), "%s", a),
			EndedBy: workorder.EndedBy(b), Branch: a, HeadSHA: b, BaseSHA: a,
			Commits: []workorder.Commit{{SHA: a, Subject: b, Author: a}, {SHA: b, Subject: a, Author: b}},
			Steps: []workorder.Step{
				{Name: workorder.StepName(a), Error: b, Status: workorder.StepFailed},
				{Name: workorder.StepName(b), Status: workorder.StepStatus(a)},
			},
			Agent:      workorder.Agent{Harness: a, Version: b, Model: a, Final: a + "\n" + b},
			Usage:      workorder.Usage{CostSource: a},
			Validation: []workorder.Validation{{Name: a, Command: b, Tail: a + "\n" + b, Log: a}},
			Proof: &workorder.Proof{
				Pages: []workorder.PageProof{{
					Path: a, Width: 10, Diff: b, Base: &workorder.PageView{Title: a, Picture: b, Console: []string{a}, Error: b},
					Head: &workorder.PageView{
						Status: 500, Picture: a, PictureWidth: -1, PictureHeight: 1 << 40, Console: []string{b, a},
						Failed: []string{a}, Error: a,
					},
				}},
				Base: a, Head: b, Reasons: workorder.Reasons{{Code: workorder.ReasonCode(a), Detail: b}},
				TestFindings: []workorder.TestFinding{{Kind: a, Path: b, Line: 3, Text: a}, {Kind: workorder.FindingNothingProven, Path: a, Text: b}},
				Checks: []workorder.CheckProof{
					{
						Name: a, Command: b, Transition: workorder.Transition(a), Report: b, Head: &workorder.CheckRun{Log: a},
						Counts: map[workorder.Transition]int{workorder.Transition(a): 1, workorder.TransitionFixed: 2},
						Tests: []workorder.TestChange{
							{Suite: a, Name: b, Transition: workorder.Transition(b), Text: a + "\n" + b},
							{Name: a, Transition: workorder.TransitionBroken, Text: b},
						},
					},
				},
			},
			Review: []workorder.ReviewAnswer{
				{Number: 1, Source: a, Path: b, Line: 3, Text: a + "\n" + b, Answer: a, Commits: []string{a, b}, Reason: b + "\n" + a},
				{Number: 2, Source: workorder.ReviewFromComment, Text: b, URL: "https://forge.example/" + a, Answer: workorder.AnswerReason, Reason: a},
			},
			Surface: []workorder.SurfaceFinding{{Kind: a, Path: b, Line: 1, Text: a, Severe: true}, {Kind: b, Path: a, Text: b}},
			Evidence: []workorder.Evidence{
				{Name: a, Path: b, Kind: a},
				{Name: a, Path: a, Kind: workorder.EvidenceScreenshot},
				{Name: b, Path: b, Kind: workorder.EvidenceVideo},
			},
			Network: &workorder.NetworkReport{Mode: workorder.NetworkMode(a), Hosts: []workorder.NetworkHost{
				{Host: a, Port: 443, Protocol: b, Status: workorder.NetworkRefused, By: []string{a, b}, Reason: a, Rule: b},
				{Host: b, Status: workorder.NetworkLearned, Reason: a},
			}},
			Refusals: []workorder.Refusal{{Rule: a, Count: 1, Text: b, By: a}},
			Image:    workorder.Image{ID: a, Name: b}, Platform: workorder.Platform{Isolation: a, EngineVersion: b, Kernel: a},
			Warnings:     []string{a, b},
			Changes:      map[string][]workorder.FileChange{a: {{Path: b, Added: 1}, {Path: a, Binary: true}}, b: {{Path: a}}},
			PastAttempts: []workorder.PastAttempt{{Number: 1, Status: workorder.Status(a), Reasons: workorder.Because("", "%s", b)}},
		},
		Order: Order{
			Task: a + "\n" + b, Project: a, Harness: b, Model: a, Network: workorder.NetworkMode(b), Allow: []string{a},
			IssueURL: "https://forge.example/i/" + a,
		},
		Evidence: []EvidenceLink{
			{Name: a, Kind: workorder.EvidenceScreenshot, URL: "https://forge.example/" + b, Group: a, Side: Side(b), Width: 10, Note: b},
			{Name: b, Kind: workorder.EvidenceScreenshot, Path: b, Group: a, Side: sideBase},
			{Name: b, Kind: a, URL: "https://forge.example/?" + a},
			{Name: b, Kind: workorder.EvidenceVideo, URL: "javascript:" + a},
		},
		CommitURL: func(sha string) string { return "https://forge.example/c/" + sha },
		FileURL:   func(_, path string, _ int) string { return "https://forge.example/f/" + path },
		Next:      []NextStep{{a, b}}, Versions: []Version{{a, b}},
	}
}

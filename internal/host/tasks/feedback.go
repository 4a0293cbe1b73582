package tasks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// reviewOf turns a pull request's feedback into the agent's input. It omits threads whose last note is sandbox-agent's, unless
// they are in pending, the feedback of an unfinished attempt.
func reviewOf(pr *forge.PR, f *forge.Feedback, pending *workorder.Review) (*workorder.Review, []string) {
	r := &workorder.Review{PR: pr.Number, URL: pr.URL}
	open := map[string]bool{}
	if pending != nil {
		for i := range pending.Items {
			open[pending.Items[i].Thread] = true
		}
	}
	var warnings []string
	quoted, full := 0, false
	for i := range f.Items {
		in := &f.Items[i]
		if in.Source == forge.FromThread && in.Answered && !open[in.Thread] || in.State == "DISMISSED" {
			continue
		}
		item, ok := reviewItem(in, open[in.Thread])
		if !ok {
			continue
		}
		if !item.Command {
			if quoted++; quoted > maxQuoted {
				continue // notes of readers must not displace commands
			}
		}
		if len(r.Items) == workorder.MaxReviewItems {
			warnings = append(warnings, fmt.Sprintf("pull request #%d has more than %d pieces of feedback: this run takes the oldest ones, the "+
				"rest is for the next `revise`", pr.Number, workorder.MaxReviewItems))
			full = true
			r.Until = lastAt(f.Items[:i], func(in *forge.Item) time.Time { return in.At })
			break
		}
		item.Number = len(r.Items) + 1
		r.Items = append(r.Items, item)
	}
	if left := quoted - maxQuoted; left > 0 {
		warnings = append(warnings, fmt.Sprintf("%d remarks of people who may not write to the repository are left out", left))
	}
	switch {
	case f.MoreCommands:
		// A missing item may be older than these, so nothing counts as read.
		warnings = append(warnings, fmt.Sprintf("pull request #%d has more feedback than can be taken at once: run `revise` again after this one",
			pr.Number))
		r.Until = time.Time{}
	case !full:
		r.Until = lastAt(f.Items, func(in *forge.Item) time.Time {
			if in.Changed.After(in.At) {
				return in.Changed
			}
			return in.At
		})
	}
	return r, warnings
}

// maxQuoted bounds the items of people without write access, who get no answers.
const maxQuoted = 30

// lastAt is the time of the newest review or comment. Threads are read until they are resolved.
func lastAt(items []forge.Item, at func(*forge.Item) time.Time) (last time.Time) {
	for i := range items {
		if t := at(&items[i]); items[i].Source != forge.FromThread && t.After(last) {
			last = t
		}
	}
	return last
}

// reviewItem is one piece of feedback. In an answered thread only later notes are commands, so that a reader's note does not
// repeat an old command. With again, the answer is ignored.
func reviewItem(in *forge.Item, again bool) (workorder.ReviewItem, bool) {
	item := workorder.ReviewItem{
		Source: in.Source, Thread: in.Thread, Path: in.Path, Line: in.Line, Outdated: in.Outdated, URL: in.URL,
	}
	others := false
	for _, n := range append([]forge.Note{in.Note}, in.Replies...) {
		trusted := !n.Ours && n.Author.CanWrite
		if n.Ours && !again {
			item.Command = false
		}
		if strings.TrimSpace(n.Body) == "" {
			continue
		}
		others = others || !n.Ours
		item.Command = item.Command || trusted
		author := n.Author.Login
		if n.Ours {
			author = "sandbox-agent"
		}
		item.Notes = append(item.Notes, workorder.ReviewNote{Author: author, Trusted: trusted, Text: n.Body, Cut: n.Cut})
	}
	return item, others
}

// commands reports whether an item may command the agent.
func commands(r *workorder.Review) bool {
	return slices.ContainsFunc(r.Items, func(i workorder.ReviewItem) bool { return i.Command })
}

// MaxFeedback bounds a file of feedback, in bytes; its items are in the task's state on the remote.
const MaxFeedback = 512 << 10

// FeedbackFile is a parsed file of feedback.
type FeedbackFile struct {
	Intro    string // the text before its list
	items    []workorder.ReviewItem
	warnings []string
}

// ParseFeedback splits the text of a file into items.
func ParseFeedback(text string) (file FeedbackFile) {
	intro, parts := splitFeedback(text)
	file.Intro = intro
	if n := len(parts); n > workorder.MaxReviewItems {
		file.warnings = append(file.warnings, fmt.Sprintf("the feedback has %d entries: this run takes the first %d", n,
			workorder.MaxReviewItems))
		parts = parts[:workorder.MaxReviewItems]
	}
	for _, p := range parts {
		file.items = append(file.items, workorder.ReviewItem{
			Source: workorder.ReviewFromFile, Command: true, Notes: []workorder.ReviewNote{{Author: "you", Trusted: true, Text: p}},
		})
	}
	return file
}

var (
	// entry matches a list's entry, and heading a heading. With more indent they belong to the text around them.
	entry   = lazyregexp.New(`^( {0,3})(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\S`)
	heading = lazyregexp.New(`^ {0,3}#{1,6}(?:[ \t]|$)`)
	// rule matches a horizontal rule, which can look like an entry.
	rule = lazyregexp.New(`^[-*_ \t]+$`)
	// fence matches the beginning or end of a block of code.
	fence = lazyregexp.New("^ {0,3}(```+|~~~+)")
)

// nested is the indent of an entry within another one.
const nested = 2

// anyEnd replaces all line ends by line feeds.
var anyEnd = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// splitFeedback returns an item for each entry of the outermost lists, or one item without a list. The text before the first
// entry introduces all of them; a heading belongs to the entry after it.
func splitFeedback(text string) (intro string, parts []string) {
	var part strings.Builder
	code, list, space, sections := "", false, 0, false
	end := func() {
		if s := strings.TrimSpace(part.String()); s != "" {
			parts = append(parts, s)
		}
		part.Reset()
	}
	before := "" // the first entry
	for line := range strings.Lines(anyEnd.Replace(strings.TrimPrefix(text, "\ufeff"))) {
		if m := fence.FindStringSubmatch(line); m != nil {
			switch {
			case code == "":
				code = m[1]
			case m[1][0] == code[0] && len(m[1]) >= len(code):
				code = ""
			}
		} else if m := entry.FindStringSubmatch(line); code == "" && m != nil && !rule.MatchString(strings.TrimRight(line, "\n")) {
			if !list || len(m[1]) < space+nested {
				switch {
				case list:
					end()
				case len(parts) == 0:
					before = part.String()
					part.Reset()
				}
				list, space = true, len(m[1])
			}
		} else if code == "" && list && heading.MatchString(line) && len(line)-len(strings.TrimLeft(line, " ")) < space+nested {
			end()
			list, sections = false, true
		}
		part.WriteString(line)
	}
	end()
	intro = strings.TrimSpace(before)
	if at := strings.LastIndexByte(intro, '\n') + 1; sections && heading.MatchString(intro[at:]) {
		parts[0] = intro[at:] + "\n" + parts[0]
		intro = strings.TrimSpace(intro[:at])
	}
	return intro, parts
}

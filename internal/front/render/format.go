package render

import (
	"fmt"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func took(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return elapsed(d)
}

// elapsed formats a running time: at first with tenths, which show that it runs.
func elapsed(d time.Duration) string {
	switch {
	case d < 0:
		return "0.0s"
	case d < time.Minute:
		// Cut, not rounded: 59.96 s is not yet a minute.
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func count(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

// usage is cost and tokens; empty if unknown.
func usage(u workorder.Usage) string {
	var parts []string
	if u.CostUSD != nil {
		cost := fmt.Sprintf("$%.4f", *u.CostUSD)
		if *u.CostUSD >= 1 {
			cost = fmt.Sprintf("$%.2f", *u.CostUSD)
		}
		switch u.CostSource {
		case "":
		case workorder.CostByGateway:
			cost += ", metered by the gateway"
		default:
			cost += " (" + oneLine(u.CostSource) + ")"
		}
		parts = append(parts, cost)
	}
	if u.Estimated {
		parts = append(parts, "partly estimated")
	}
	if u.ReservedUSD > 0 {
		parts = append(parts, fmt.Sprintf("up to $%.4f more for answers that broke off", u.ReservedUSD))
	}
	for _, t := range []struct {
		n    int64
		what string
	}{{u.InputTokens, "in"}, {u.OutputTokens, "out"}, {u.CacheReadTokens, "cache read"}, {u.CacheWriteTokens, "cache written"}} {
		if t.n > 0 {
			parts = append(parts, count(t.n)+" "+t.what)
		}
	}
	return strings.Join(parts, " · ")
}

func short(sha string) string {
	const enough = 10
	sha = oneLine(sha)
	if len(sha) > enough && strings.Trim(sha, "0123456789abcdef") == "" {
		return sha[:enough]
	}
	return sha
}

// shortRef omits refs/heads/; before it may be the name of a further repository.
func shortRef(ref string) string { return strings.Replace(oneLine(ref), "refs/heads/", "", 1) }

// paint is a colour, or none.
type paint bool

const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (p paint) as(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// oneLine is text.Clean for a single line.
func oneLine(s string) string {
	s = text.Clean(s)
	if !strings.Contains(s, "\n") {
		return strings.TrimSpace(s)
	}
	var parts []string
	for l := range strings.SplitSeq(s, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			parts = append(parts, l)
		}
	}
	return strings.Join(parts, " | ")
}

func columns(s string) int {
	w := 0
	for _, r := range s {
		w += runeColumns(r)
	}
	return w
}

// terminal ignores the locale, so that the same text is cut at the same place everywhere.
var terminal = &runewidth.Condition{StrictEmojiNeutral: true}

// runeColumns counts each character alone. Terminals that join emoji to one show fewer columns; a line that counts
// as too long is only cut early.
func runeColumns(r rune) int { return terminal.RuneWidth(r) }

func cut(s string, width int) string {
	if width <= 0 {
		return ""
	}
	if columns(s) <= width {
		return s
	}
	w := 0
	for i, r := range s {
		c := runeColumns(r)
		if w+c > width-1 {
			return s[:i] + "…"
		}
		w += c
	}
	return s
}

// wrap breaks a cleaned text into at most limit lines of at most width columns, at spaces if possible.
func wrap(s string, width, limit int) []string {
	width = max(width, 10)
	var lines []string
	for l := range strings.SplitSeq(strings.Trim(s, "\n"), "\n") {
		for columns(l) > width {
			at := breakAt(l, width)
			lines = append(lines, strings.TrimRight(l[:at], " "))
			l = strings.TrimLeft(l[at:], " ")
			if len(lines) > limit {
				break
			}
		}
		lines = append(lines, l)
		if len(lines) > limit {
			break
		}
	}
	if len(lines) > limit {
		lines = append(lines[:limit], "…")
	}
	return lines
}

// breakAt is the place to break a line that is longer than width.
func breakAt(s string, width int) int {
	w, space := 0, 0
	for i, r := range s {
		if w += runeColumns(r); w > width {
			if space > len(s[:i])/2 {
				return space
			}
			return max(i, 1)
		}
		if r == ' ' {
			space = i + 1
		}
	}
	return len(s)
}

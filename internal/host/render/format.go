package render

import (
	"fmt"
	"strings"
	"time"

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

// count formats a number of tokens in a few characters.
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

// short is the short form of a commit id.
func short(sha string) string {
	const enough = 10
	sha = oneLine(sha)
	if len(sha) > enough && strings.Trim(sha, "0123456789abcdef") == "" {
		return sha[:enough]
	}
	return sha
}

// shortRef removes the prefix that every branch has.
func shortRef(ref string) string { return strings.TrimPrefix(oneLine(ref), "refs/heads/") }

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

package cmdutil

import (
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Clip shortens a text for a column of a table.
func Clip(s string) string {
	const most = 50
	return text.Runes(s, most)
}

// OrDash is "-" for an empty cell.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Age shows a duration in its largest unit.
func Age(d time.Duration) string {
	const day, twoDays = 24 * time.Hour, 48 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < twoDays:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d/day))
}

// Since returns the age of something created then; "-" if the time is unknown.
func Since(created time.Time) string {
	if created.IsZero() {
		return OrDash("")
	}
	return Age(time.Since(created))
}

// Ago is Since in words.
func Ago(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return Age(max(0, time.Since(t))) + " ago"
}

package cmdutil

import (
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
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

// Since returns the age of something created then; "-" if the time is unknown.
func Since(created time.Time) string {
	if created.IsZero() {
		return OrDash("")
	}
	return text.Age(time.Since(created))
}

// Ago is Since in words.
func Ago(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return text.Age(max(0, time.Since(t))) + " ago"
}

// Advise prints settings of a project that are correct and may surprise.
func Advise(w io.Writer, p *projects.Project) {
	for _, a := range p.Advice() {
		fmt.Fprintf(w, "warning: %s\nhint: %s\n", a.Message, a.Hint)
	}
}

// Size shows bytes in the decimal units of docker.
func Size(n int64) string {
	switch {
	case n < 1e3:
		return fmt.Sprintf("%d B", n)
	case n < 1e6:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// Megabytes shows a number of bytes; a negative one is unknown.
func Megabytes(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprintf("%d MB", n>>20)
}

package text

import (
	"fmt"
	"time"
)

// Clock formats a local time of day, with the day if that is not today.
func Clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("Mon 2006-01-02 15:04")
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

package text

import "time"

// Clock formats a local time of day, with the day if that is not today.
func Clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("Mon 2006-01-02 15:04")
}

package render

import "testing"

func TestColumns(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "abc": 3, "…": 1, "\ufffd": 1, "é": 1, "e\u0301": 1, "\u200d": 0, "漢字": 4, "ｱ": 1, "Ａ": 2, "✓": 1, "✅": 2,
		"☕": 2, "⏳": 2, "⏰": 2, "♈": 2, "🚀": 2, "🌡": 1, "│": 1,
	} {
		if got := columns(s); got != want {
			t.Errorf("%q (%U): %d columns, want %d", s, []rune(s), got, want)
		}
	}
	if got := cut("☕☕☕", 5); got != "☕☕…" {
		t.Errorf("cut: %q", got)
	}
}

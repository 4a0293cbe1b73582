package taskcmd

import "testing"

// A task is given once.
func TestTwoTasks(t *testing.T) {
	t.Parallel()
	if _, err := (&textOptions{issue: 1, words: "x", wordsSet: true}).read(t.Context(), nil); err == nil {
		t.Error("two tasks were taken")
	}
}

package proc

import (
	"strings"
	"testing"
)

func TestReadStat(t *testing.T) {
	t.Parallel()
	tail := strings.Repeat(" 0", 14)
	for stat, want := range map[string]Info{
		"7 (sh) S 3" + tail + " 0 1 0 99":          {Parent: 3, Start: 99, Alive: true},
		"7 (a) b ) (c) R 3" + tail + " 0 1 0 99":   {Parent: 3, Start: 99, Alive: true},
		"7 (dead) Z 3" + tail + " 0 1 0 99":        {Parent: 3, Start: 99},
		"7 (first ended) Z 3" + tail + " 0 4 0 99": {Parent: 3, Start: 99, Alive: true},
	} {
		if got, ok := readStat(stat); got != want || !ok {
			t.Errorf("%s: %+v, %t, want %+v", stat, got, ok, want)
		}
	}
	for _, stat := range []string{"", "7", "7 (x", "7 (x) S", "7 (x) S y" + tail + " 0 1 0 99", "7 (x) S 3" + tail + " 0 1 0"} {
		if _, ok := readStat(stat); ok {
			t.Errorf("%q was read", stat)
		}
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	all := []Info{
		{PID: 2, Parent: 1, Alive: true},
		{PID: 3, Parent: 2, Alive: true},
		{PID: 4, Parent: 3, Alive: true},
		{PID: 5, Parent: 3},
		{PID: 6, Parent: 1, Alive: true},
	}
	for _, row := range []struct{ ancestors, want []int }{
		{[]int{2}, []int{3, 4}},
		{[]int{1}, []int{2, 6, 3, 4}},
		{[]int{2, 3}, []int{3, 4}},
		{[]int{4, 5, 6, 9}, nil},
		{nil, nil},
	} {
		var got []int
		for _, r := range Descendants(all, row.ancestors...) {
			got = append(got, r.PID)
		}
		if len(got) != len(row.want) {
			t.Errorf("%v: %v, want %v", row.ancestors, got, row.want)
			continue
		}
		for i := range got {
			if got[i] != row.want[i] {
				t.Errorf("%v: %v, want %v", row.ancestors, got, row.want)
			}
		}
	}
}

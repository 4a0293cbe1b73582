package proc

import (
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	st, err := ParseStat([]byte("42 (a) R 7 (x) Z 1 42 9 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 12345 0 0\n"))
	if err != nil || st.Parent != 1 || st.Session != 9 || st.Began != "12345" || st.Ticks != 3 || !st.Zombie {
		t.Errorf("got %+v, %v", st, err)
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S 1 2", "1 (x) S y 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 12345"} {
		if _, err := ParseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if st, err := ReadStat(os.Getpid()); err != nil || st.Parent != os.Getppid() {
		t.Errorf("own state %+v, %v", st, err)
	}
}

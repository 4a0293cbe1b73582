package stand

import (
	"os/user"
	"strconv"
	"testing"
)

func TestLookUp(t *testing.T) {
	t.Parallel()
	daemon, err := user.Lookup("daemon")
	if err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]struct{ uid, gid, home string }{
		"daemon":          {daemon.Uid, daemon.Gid, daemon.HomeDir},
		daemon.Uid:        {daemon.Uid, daemon.Gid, daemon.HomeDir},
		"daemon:root":     {daemon.Uid, "0", daemon.HomeDir},
		"54321":           {"54321", "0", "/"},
		"54321:12345":     {"54321", "12345", "/"},
		"54321:nogroup-x": {},
		"no-such-user":    {},
		"54321:-1":        {},
	} {
		who, _, home, err := lookUp(spec)
		if want.uid == "" {
			if err == nil {
				t.Errorf("%s: no error", spec)
			}
			continue
		}
		if err != nil || strconv.Itoa(int(who.UID)) != want.uid || strconv.Itoa(int(who.GID)) != want.gid || home != want.home {
			t.Errorf("%s: %+v %s, %v, want %+v", spec, who, home, err, want)
		}
	}
	for _, spec := range []string{"", "root", "0", "0:0", "root:root"} {
		if who, _, _, err := lookUp(spec); who != nil || err != nil {
			t.Errorf("%q: %+v, %v, want root", spec, who, err)
		}
	}
}

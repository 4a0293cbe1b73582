package standalone

import (
	"bytes"
	"io"
	"os/user"
	"slices"
	"strconv"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

func TestVariablesOfTheSandbox(t *testing.T) {
	t.Setenv("OF_THE_IMAGE", "$x")
	c := wire.Config{Unisolated: true, Env: []string{"PLAIN=$OF_THE_IMAGE"}, ImageEnv: map[string]string{"MORE": "a:${OF_THE_IMAGE}$$"}}
	got, err := configure(c)
	if err != nil || !slices.Contains(got.Env, "MORE=a:$x$") || !slices.Contains(got.Env, "PLAIN=$OF_THE_IMAGE") {
		t.Errorf("%q, %v", got.Env, err)
	}
	c.ImageEnv["MORE"] = "$NO_SUCH_VARIABLE"
	if _, err := configure(c); err == nil {
		t.Error("a variable that is not there is taken")
	}
}

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

// spliced is a stream that io.Copy would pass on by a way of its own.
type spliced struct {
	bytes.Buffer
	t *testing.T
}

func (s *spliced) ReadFrom(io.Reader) (int64, error) { s.t.Error("spliced"); return 0, io.EOF }
func (s *spliced) WriteTo(io.Writer) (int64, error)  { s.t.Error("spliced"); return 0, io.EOF }

// A stream is passed on through memory: splice between a socket and a pipe that is full takes a whole processor.
func TestPass(t *testing.T) {
	t.Parallel()
	from, to := &spliced{t: t}, &spliced{t: t}
	from.WriteString("x")
	if n, err := pass(to, from); n != 1 || err != nil || to.String() != "x" {
		t.Errorf("%d, %v, %q", n, err, to)
	}
}

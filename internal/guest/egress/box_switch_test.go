//go:build boxtest

package egress_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// holds opens a connection that waits for its end, and returns what it prints.
func (b *box) holds(who string) (p *proc.Process, out *syncBuffer) {
	b.t.Helper()
	out = &syncBuffer{}
	s := spec(who, []string{"banner-wait", good + ":22"})
	s.Stdout = out
	p, err := proc.Start(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { p.Signal(9); _ = p.Wait() })
	for end := time.Now().Add(patience); !strings.Contains(out.String(), "banner"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("no banner: %s", out)
		}
	}
	return p, out
}

// Another policy counts at once, for what is open too, and can be taken back.
func TestSetPolicy(t *testing.T) {
	b := newBox(t, workorder.NetworkPolicy{Mode: workorder.NetworkFull})
	set := func(mode workorder.NetworkMode, allow ...string) {
		t.Helper()
		if err := b.e.SetPolicy(t.Context(), workorder.NetworkPolicy{Mode: mode, Allow: allow}); err != nil {
			t.Fatal(err)
		}
	}
	b.untrusted("ok", "page", "send", evil+":80", page("x"))
	own, ownOut := b.holds("sandbox")
	inner, innerOut := b.holds("inner")
	set(workorder.NetworkNone)
	for out, p := range map[*syncBuffer]*proc.Process{ownOut: own, innerOut: inner} {
		_ = p.Wait()
		if strings.Contains(out.String(), "ok:") {
			t.Errorf("an earlier connection ended so: %s", out)
		}
	}
	b.untrusted("error", "refused", "send", good+":80", page("good.test"))
	b.untrusted("ok", "NameError", "dns", "udp", "198.51.100.53:53", "good.test.", "A")
	b.always()
	if err := b.e.SetPolicy(t.Context(), workorder.NetworkPolicy{Mode: "some"}); err == nil {
		t.Error("an unknown mode")
	}
	b.untrusted("error", "refused", "send", good+":80", page("good.test"))

	set(workorder.NetworkRestricted, "good.test")
	b.untrusted("ok", "page", "send", b.synthetic("good.test")+":80", page("good.test"))
	b.untrusted("error", "", "send", evil+":22", "")
	set(workorder.NetworkRestricted, "evil.test")
	b.untrusted("ok", "page", "send", b.synthetic("evil.test")+":80", page("evil.test"))
	b.untrusted("ok", "refuses", "send", b.synthetic("evil.test")+":80", page("good.test"))

	set(workorder.NetworkFull)
	b.untrusted("ok", "page", "send", evil+":80", page("x"))
	b.untrusted("ok", "93.184.216.1", "dns", "udp", "198.51.100.53:53", "good.test.", "A")
}

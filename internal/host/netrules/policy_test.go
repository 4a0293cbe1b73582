package netrules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/host/netrules"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func host(name string, port uint16, protocol string, status workorder.NetworkStatus, count int64, by ...string) workorder.NetworkHost {
	h := workorder.NetworkHost{Host: name, Port: port, Protocol: protocol, Status: status, Count: count, By: by}
	if status != workorder.NetworkAllowed {
		h.Rule = netrules.Line(workorder.AllowRuleFor(name, port).String())
	}
	return h
}

func rules(p netrules.Proposal) string {
	var all []string
	for _, r := range p.Allow {
		all = append(all, r.Rule)
	}
	return strings.Join(all, " ")
}

func TestPropose(t *testing.T) {
	hosts := []workorder.NetworkHost{
		host("z.example", 443, "tcp", "refused", 2, "curl (pid 1)"), host("z.example", 80, "tcp", "allowed", 1, "wget (pid 2)", "curl (pid 1)"),
		host("z.example", 8443, "tcp", "learned", 1), host("z.example", 0, "dns", "learned", 9),
		host("only.example", 0, "dns", "refused", 3),
		host("Pastebin.com", 443, "tcp", "learned", 1), host("192.0.2.7", 5432, "tcp", "refused", 1), host("2001:db8::1", 22, "tcp", "refused", 1),
		host("q.example", 443, "udp", "refused", 4),
		{Host: "169.254.169.254", Port: 80, Protocol: "tcp", Status: "refused", Count: 1, Reason: "metadata", Rule: "- 169.254.169.254"},
		{Host: "169.254.169.254", Port: 80, Protocol: "tcp", Status: "refused", Count: 2, Reason: "metadata"},
		{Host: "a\nb: c", Port: 443, Protocol: "tcp", Status: "learned", Rule: "- evil.example"},
		{Host: "*.example", Port: 443, Protocol: "tcp", Status: "learned", Rule: "- '*.example'"},
	}
	p := netrules.Propose(hosts, netrules.Options{})
	if got := rules(p); got != "192.0.2.7:5432 [2001:db8::1]:22 only.example pastebin.com z.example z.example:8443" {
		t.Errorf("rules %s", got)
	}
	i := slices.IndexFunc(p.Allow, func(r netrules.Rule) bool { return r.Rule == "z.example" })
	if r := p.Allow[i]; r.Count != 3 || len(r.Statuses) != 3 || !cmp.Equal(r.By, []string{"curl", "wget"}) || r.Asked || r.Risk != "" {
		t.Errorf("%+v", r)
	}
	if r := p.Allow[2]; !r.Asked {
		t.Errorf("%+v", r)
	}
	if r := p.Allow[3]; !strings.Contains(r.Risk, "paste site") {
		t.Errorf("%+v", r)
	}
	if len(p.Never) != 4 || p.Never[1].Host != "169.254.169.254" || p.Never[1].Count != 3 {
		t.Errorf("never %+v", p.Never)
	}
	if got := rules(netrules.Propose(hosts, netrules.Options{Statuses: []workorder.NetworkStatus{"allowed"}})); got != "z.example" {
		t.Errorf("only allowed: %s", got)
	}
	// The proposed rules allow the hosts that were reached for.
	for _, h := range hosts[:3] {
		if !slices.ContainsFunc(p.Allow, func(r netrules.Rule) bool {
			parsed, err := workorder.ParseAllowRule(r.Rule)
			return err == nil && parsed.Match(h.Host, h.Port)
		}) {
			t.Errorf("%+v is not allowed", h)
		}
	}
}

// A rule for another port alone lets a name be looked up.
func TestLookupOfAnotherPort(t *testing.T) {
	p := netrules.Propose([]workorder.NetworkHost{host("git.example", 0, "dns", "refused", 1), host("git.example", 22, "tcp", "refused", 1)}, netrules.Options{})
	if got := rules(p); got != "git.example:22" {
		t.Error(got)
	}
}

func TestWildcards(t *testing.T) {
	var hosts []workorder.NetworkHost
	for _, h := range []string{"a.b.example.co.uk", "c.example.co.uk", "d.example.co.uk", "example.co.uk", "x.two.example", "y.two.example", "other.co.uk", "192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		hosts = append(hosts, host(h, 443, "tcp", "learned", 1, h))
	}
	if got := rules(netrules.Propose(hosts, netrules.Options{})); strings.Contains(got, "*") {
		t.Error(got)
	}
	p := netrules.Propose(hosts, netrules.Options{Wildcards: true})
	if got := rules(p); got != "*.example.co.uk 192.0.2.1 192.0.2.2 192.0.2.3 example.co.uk other.co.uk x.two.example y.two.example" {
		t.Error(got)
	}
	if r := p.Allow[0]; r.Count != 3 || strings.Join(r.Hosts, " ") != "a.b.example.co.uk c.example.co.uk d.example.co.uk" {
		t.Errorf("%+v", r)
	}
}

func TestRisk(t *testing.T) {
	for _, h := range []string{"pastebin.com", "gist.github.com", "my-bucket.s3.eu-west-1.amazonaws.com", "x.webhook.site", "hooks.slack.com"} {
		if netrules.Risk(h) == "" {
			t.Errorf("%s is not said to be open", h)
		}
	}
	for _, h := range []string{"example.com", "notpastebin.com", "proxy.golang.org", "192.0.2.1"} {
		if r := netrules.Risk(h); r != "" {
			t.Errorf("%s: %s", h, r)
		}
	}
}

// Hosts of a result and of events are not counted twice; events alone are enough.
func TestHosts(t *testing.T) {
	events := []workorder.Event{
		{Type: workorder.EventNetwork, Name: "a.example:443", Status: "refused", By: "curl", Text: "not allowed", Fix: "- a.example"},
		{Type: workorder.EventNetwork, Name: "[2001:db8::1]:22", Status: "learned"},
		{Type: workorder.EventNetwork, Name: "b.example", Status: "refused", Fix: "- b.example"},
		{Type: workorder.EventNetwork, Name: "c.example:x", Status: "refused"},
		{Type: workorder.EventNetwork},
		{Type: workorder.EventWarning, Name: "d:1"},
	}
	want := []workorder.NetworkHost{
		{Host: "a.example", Port: 443, Protocol: "tcp", Status: "refused", Count: 1, By: []string{"curl"}, Reason: "not allowed", Rule: "- a.example"},
		{Host: "2001:db8::1", Port: 22, Protocol: "tcp", Status: "learned", Count: 1},
		{Host: "b.example", Protocol: "dns", Status: "refused", Count: 1, Rule: "- b.example"},
	}
	if d := cmp.Diff(want, netrules.Run{Events: events}.Hosts()); d != "" {
		t.Error(d)
	}
	res := &workorder.Result{Network: &workorder.NetworkReport{Mode: workorder.NetworkRestricted, Hosts: []workorder.NetworkHost{{Host: "a.example", Port: 443, Protocol: "tcp", Status: "refused", Count: 7}}}}
	got := netrules.Run{Result: res, Events: events}
	if h := got.Hosts(); len(h) != 3 || h[0].Count != 7 || !got.Restricted() {
		t.Errorf("%+v", h)
	}
}

// FuzzLine: a rule as a list item is read back by YAML as the same text.
func FuzzLine(f *testing.F) {
	for _, s := range []string{"example.com", "*.example.com", "[2001:db8::1]:22", "2001:db8::1", "localhost", "true", "10.0.0.1", "1.5", "a.b:22"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := workorder.ParseAllowRule(s)
		if err != nil {
			return
		}
		var got []yaml.Node
		if err := yaml.Unmarshal([]byte(netrules.Line(r.String())), &got); err != nil || len(got) != 1 || got[0].Value != r.String() {
			t.Fatalf("%q is written as %s and read as %v, %v", r, netrules.Line(r.String()), got, err)
		}
	})
}

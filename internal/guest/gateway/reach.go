package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxSaid bounds the destinations that get events. A client that names more is scanning.
	maxSaid = 1000
	// maxNamed bounds the names in one refusal and one audit line.
	maxNamed = 5
	// toolsKey is the project file's key that allows the provider's tools.
	toolsKey = "gateway: {provider_tools: true}"
	// byGateway is the source named in events.
	byGateway = "gateway"
)

// judge applies the network policy to requests: a fetch or a tool of the provider bypasses the box's own
// network.
type judge struct {
	mode  workorder.NetworkMode
	learn bool
	tools bool // the provider may run tools
	rules []workorder.AllowRule
	emit  func(workorder.Event) // nil to drop events

	mu   sync.Mutex
	said map[string]bool
}

func newJudge(n workorder.Network, g *workorder.Gateway, emit func(workorder.Event)) (*judge, error) {
	if n.Mode == "" {
		n.Mode = workorder.NetworkFull
	}
	j := &judge{mode: n.Mode, learn: n.Learn, tools: g.RunsProviderTools(n.Mode), emit: emit, said: map[string]bool{}}
	for _, s := range n.Allow {
		r, err := workorder.ParseAllowRule(s)
		if err != nil {
			return nil, fmt.Errorf("model gateway: %w", err)
		}
		j.rules = append(j.rules, r)
	}
	return j, nil
}

// idle reports whether everything passes.
func (j *judge) idle() bool { return j.mode == workorder.NetworkFull && j.tools }

// verdict is the decision on one reach.
type verdict struct {
	name   string // name used in events
	status workorder.NetworkStatus
	reason string
	fix    string // the line of the project file that would allow it
	where  string // the key that fix belongs under; empty if none
}

// decide decides on one reach. The name is empty if the provider reaches nothing.
func (j *judge) decide(r reach) verdict {
	v := verdict{
		name: clean(r.what), reason: "the provider would run or fetch it, outside the sandbox", fix: toolsKey, status: workorder.NetworkRefused,
	}
	switch {
	case r.what != "" && j.tools:
		return verdict{}
	case r.what != "":
	case r.url == "" || len(r.url) >= 5 && strings.EqualFold(r.url[:5], "data:") || j.mode == workorder.NetworkFull:
		return verdict{}
	default:
		v = j.fetch(r.url)
	}
	if v.status == workorder.NetworkRefused && j.learn {
		v.status = workorder.NetworkLearned
	}
	return v
}

// fetch applies the policy to a URL as to a connection to its host.
func (j *judge) fetch(raw string) verdict {
	host, port, ok := target(raw)
	if !ok {
		return verdict{
			name: "URL " + clean(raw), status: workorder.NetworkRefused,
			reason: "the provider would fetch it, and parsers disagree about its host: use http or https, a host, and no user",
		}
	}
	v := verdict{name: net.JoinHostPort(host, strconv.Itoa(int(port))), status: workorder.NetworkAllowed}
	if slices.ContainsFunc(j.rules, func(r workorder.AllowRule) bool { return r.Match(host, port) }) {
		return v
	}
	v.status, v.reason = workorder.NetworkRefused, "the provider would fetch from it, and no rule of network.allow covers it"
	rule := workorder.AllowRuleFor(host, port)
	if _, err := workorder.ParseAllowRule(rule.String()); err == nil && j.mode == workorder.NetworkRestricted {
		v.fix, v.where = rule.Line(), " under network.allow"
	}
	return v
}

// target returns a URL's host and port if all parsers read the URL the same way.
func target(raw string) (host string, port uint16, ok bool) {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || u.Opaque != "" {
		return "", 0, false
	}
	switch u.Scheme {
	case "http":
		port = 80
	case "https":
		port = 443
	default:
		return "", 0, false
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", 0, false
		}
		port = uint16(n)
	} else if strings.HasSuffix(u.Host, ":") {
		return "", 0, false
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return a.Unmap().WithZone("").String(), port, a.Zone() == ""
	}
	host = workorder.CanonicalHost(u.Hostname())
	return host, port, workorder.ValidHostName(host)
}

// say emits an event, only the first of its kind.
func (j *judge) say(v verdict) {
	if j.emit == nil {
		return
	}
	key := string(v.status) + " " + v.name
	j.mu.Lock()
	known := j.said[key] || len(j.said) >= maxSaid
	if !known {
		j.said[key] = true
	}
	j.mu.Unlock()
	if !known {
		j.emit(workorder.Event{Type: workorder.EventNetwork, Name: v.name, Status: string(v.status), By: byGateway, Text: v.reason, Fix: v.fix})
	}
}

// police refuses a request by which the provider would reach destinations that the box must not reach.
func (c *call) police() *refusal {
	j := c.m.judge
	if j.idle() || c.r.Method != http.MethodPost || len(c.ask.body) == 0 {
		return nil
	}
	var err error
	if !c.ask.op.metered { // a metered body was read already
		_, err = parseBody(c.ask.body)
	}
	var found []reach
	if err == nil {
		found, err = scan(c.ask.body)
	}
	if err != nil {
		return &refusal{
			status: http.StatusBadRequest, kind: "bad_request",
			text: fmt.Sprintf("the network policy cannot be applied to the body of %s %s: %v", c.ask.op.method, c.ask.path, err),
		}
	}
	var no, fixes []string
	for _, r := range found {
		v := j.decide(r)
		if v.name == "" {
			continue
		}
		j.say(v)
		few(&c.line.Reaches, v.name)
		if v.status == workorder.NetworkRefused {
			few(&no, v.name+" ("+v.reason+")")
			if v.fix != "" {
				few(&fixes, "`"+v.fix+"`"+v.where)
			}
		}
	}
	if len(no) == 0 {
		return nil
	}
	text := fmt.Sprintf("the network policy of this sandbox (network: %s) refuses what the request has: %s.", j.mode, strings.Join(no, "; "))
	if len(fixes) > 0 {
		text += " The project file would allow it by " + strings.Join(fixes, " and ") + "."
	}
	return &refusal{status: http.StatusBadRequest, kind: "network", text: text}
}

// few returns the first distinct values.
func few(list *[]string, s string) {
	if len(*list) < maxNamed && !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

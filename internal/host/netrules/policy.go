// Package netrules proposes the rules of a restricted network from the hosts that runs tried to reach. A box's report is
// untrusted: each rule is rebuilt from the host and marked if anyone can receive data there.
package netrules

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// wildcardFrom is the number of subdomains that one *.domain rule replaces.
const wildcardFrom = 3

// maxBy bounds the programs that are named as users of a rule.
const maxBy = 3

// Rule is a proposed rule.
type Rule struct {
	Rule     string                    `json:"rule"`
	Hosts    []string                  `json:"hosts"` // the rule's hosts, if they differ from the rule
	Count    int64                     `json:"count"`
	Statuses []workorder.NetworkStatus `json:"statuses"`
	By       []string                  `json:"by"`
	Risk     string                    `json:"risk"` // why an agent could send data to anyone there; "" if no reason is known
	Asked    bool                      `json:"only_looked_up"`

	parsed   workorder.AllowRule
	lookedUp int64
}

// Options select the input of Propose.
type Options struct {
	Statuses  []workorder.NetworkStatus // "" selects all
	Wildcards bool
}

// Proposal is the shortest list of rules for the hosts.
type Proposal struct {
	Allow []Rule                  `json:"allow"`
	Never []workorder.NetworkHost `json:"never"` // hosts that no rule can allow
}

// Propose returns the shortest list of rules that allows the hosts.
func Propose(hosts []workorder.NetworkHost, o Options) Proposal {
	p := Proposal{Allow: []Rule{}, Never: []workorder.NetworkHost{}}
	rules := map[string]*Rule{}
	for _, h := range hosts {
		if len(o.Statuses) > 0 && !slices.Contains(o.Statuses, h.Status) {
			continue
		}
		parsed, ok := ruleFor(h)
		if !ok {
			p.never(h)
			continue
		}
		name := parsed.String()
		r := rules[name]
		if r == nil {
			r = &Rule{Rule: name, Hosts: []string{}, By: []string{}, Risk: Risk(parsed.Host), Asked: true, parsed: parsed}
			rules[name] = r
		}
		r.add(h)
	}
	for _, r := range rules {
		if r.Asked {
			r.Count = r.lookedUp // otherwise a connection and its look-up would count twice
		}
	}
	lookups(rules)
	if o.Wildcards {
		collapse(rules)
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		p.Allow = append(p.Allow, *rules[name])
	}
	return p
}

// pid matches the suffix by which boxes distinguish processes of one name.
var pid = lazyregexp.New(` \(pid [0-9]+\)$`)

// ruleFor returns the smallest rule for a host. A name that was only looked up has no port.
func ruleFor(h workorder.NetworkHost) (workorder.AllowRule, bool) {
	if h.Protocol != "" && h.Protocol != "tcp" && h.Protocol != "dns" || h.Status == workorder.NetworkRefused && h.Rule == "" {
		return workorder.AllowRule{}, false
	}
	r := workorder.AllowRuleFor(workorder.CanonicalHost(h.Host), h.Port)
	// If a box saw neither TLS nor HTTP on a web port, its rule names the port.
	if exact := (workorder.AllowRule{Host: r.Host, Port: h.Port}); h.Port != 0 && Bare(h.Rule) == exact.String() {
		r = exact
	}
	if said, err := workorder.ParseAllowRule(Bare(h.Rule)); err == nil && said.Private && said.Host == r.Host {
		r = said // the name had a private address
	}
	parsed, err := workorder.ParseAllowRule(r.String())
	return parsed, err == nil && parsed == r
}

func (r *Rule) add(h workorder.NetworkHost) {
	if n := max(h.Count, 1); h.Protocol == "dns" {
		r.lookedUp += n
	} else {
		r.Count += n
		r.Asked = false
	}
	if !slices.Contains(r.Statuses, h.Status) {
		r.Statuses = append(r.Statuses, h.Status)
		slices.Sort(r.Statuses)
	}
	r.name(h.By)
}

func (r *Rule) name(by []string) {
	for _, b := range by {
		b = pid.ReplaceAllString(b, "")
		if len(r.By) < maxBy && !slices.Contains(r.By, b) {
			r.By = append(r.By, b)
		}
	}
}

func (p *Proposal) never(h workorder.NetworkHost) {
	i := slices.IndexFunc(p.Never, func(n workorder.NetworkHost) bool {
		return n.Host == h.Host && n.Port == h.Port && n.Protocol == h.Protocol
	})
	if i >= 0 {
		p.Never[i].Count += max(h.Count, 1)
		return
	}
	h.Count = max(h.Count, 1)
	p.Never = append(p.Never, h)
}

// lookups drops the rule of a look-up if another rule of the same name allows it.
func lookups(rules map[string]*Rule) {
	for name, r := range rules {
		if !r.Asked {
			continue
		}
		for _, other := range rules {
			if !other.Asked && other.parsed.Names(r.parsed.Host) {
				delete(rules, name)
				break
			}
		}
	}
}

// collapse replaces many subdomains of one domain by one rule.
func collapse(rules map[string]*Rule) {
	type parentDomain struct {
		domain string
		port   uint16
	}
	byParent := map[parentDomain][]*Rule{}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		r := rules[name]
		domain, err := publicsuffix.EffectiveTLDPlusOne(r.parsed.Host)
		if err != nil || domain == r.parsed.Host {
			continue // an address, a bare name, or the domain itself, which *.domain does not allow
		}
		f := parentDomain{domain, r.parsed.Port}
		byParent[f] = append(byParent[f], r)
	}
	for f, members := range byParent {
		if len(members) < wildcardFrom {
			continue
		}
		parsed := workorder.AllowRule{Host: f.domain, Sub: true, Port: f.port}
		all := &Rule{Rule: parsed.String(), Hosts: []string{}, By: []string{}, Risk: Risk(f.domain), Asked: true, parsed: parsed}
		for _, m := range members {
			parsed.Private = parsed.Private || m.parsed.Private
			all.Hosts = append(all.Hosts, m.parsed.Host)
			all.Count += m.Count
			all.Asked = all.Asked && m.Asked
			all.Risk = cmp.Or(all.Risk, m.Risk)
			all.Statuses = append(all.Statuses, m.Statuses...)
			all.name(m.By)
			delete(rules, m.Rule)
		}
		all.Rule, all.parsed = parsed.String(), parsed
		slices.Sort(all.Statuses)
		all.Statuses = slices.Compact(all.Statuses)
		rules[all.Rule] = all
	}
}

// Risk says how anyone can receive what is sent to a host, or "".
func Risk(host string) string {
	for _, k := range open {
		for _, d := range k.domains {
			if host == d || strings.HasSuffix(host, "."+d) {
				return k.what
			}
		}
	}
	return ""
}

// Policy has the settings that decide whether a box reaches a host.
type Policy struct {
	Mode     workorder.NetworkMode
	Rules    []workorder.AllowRule
	Services []workorder.Service
}

// https is the default port of a host.
const https = 443

// Allows reports whether the policy lets a box reach a host; says names the rule or the reason.
func (n Policy) Allows(place workorder.AllowRule) (says string, ok bool) {
	port := cmp.Or(place.Port, https)
	addr, _ := netip.ParseAddr(place.Host)
	switch {
	case slices.ContainsFunc(workorder.Metadata(), func(p netip.Prefix) bool { return p.Contains(addr) }):
		return "refused: metadata services of clouds are unreachable with every network mode", false
	case place.Host == "localhost" || addr.IsLoopback():
		return "allowed: it is the sandbox itself", true
	case slices.ContainsFunc(n.Services, func(s workorder.Service) bool { return s.Name == place.Host }):
		return "allowed: it is a service of the project", true
	case n.Mode == workorder.NetworkFull:
		return "allowed: the network is full", true
	case n.Mode == workorder.NetworkNone:
		return "refused: the network is none, which no rule changes", false
	case addr.IsValid() && workorder.Undialled(addr) != "":
		return fmt.Sprintf("refused: %s is %s, which no rule can allow", addr, workorder.Undialled(addr)), false
	}
	for _, r := range n.Rules {
		if r.Match(place.Host, port) {
			only := ""
			if _, err := netip.ParseAddr(r.Host); r.Port == 0 && err != nil {
				only = " for TLS and HTTP"
			}
			return fmt.Sprintf("allowed by %s%s", r, only), true
		}
	}
	return fmt.Sprintf("refused: it needs %q under network.allow", Line(workorder.AllowRuleFor(place.Host, port).String())), false
}

// Bare returns a rule without the syntax of a YAML list, which boxes report.
func Bare(line string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(line), "- "), `"'`)
}

// Line returns a rule as an item of a YAML list.
func Line(rule string) string {
	rule = Bare(rule)
	if r, err := workorder.ParseAllowRule(rule); err == nil {
		return r.Line()
	}
	return "- '" + strings.ReplaceAll(rule, "'", "''") + "'" // from an event of another program
}

// Run is the record of one attempt.
type Run struct {
	Number int
	Asked  workorder.NetworkMode // the mode of its order; "" without an order
	Result *workorder.Result     // nil if there is none
	Events []workorder.Event
}

// mode is the mode of the attempt's result or order, or "".
func (r Run) mode() workorder.NetworkMode {
	if r.Result != nil && r.Result.Network != nil {
		return r.Result.Network.Mode
	}
	return r.Asked
}

// Hosts returns the hosts of the attempt's result and events; a lost run has only events.
func (r Run) Hosts() []workorder.NetworkHost {
	var all []workorder.NetworkHost
	known := map[string]bool{}
	if r.Result != nil && r.Result.Network != nil {
		for _, h := range r.Result.Network.Hosts {
			all = append(all, h)
			known[place(h)] = true
		}
	}
	for _, e := range r.Events {
		if e.Type != workorder.EventNetwork {
			continue
		}
		h, ok := hostOf(e)
		if ok && !known[place(h)] {
			known[place(h)] = true
			all = append(all, h)
		}
	}
	return all
}

// Restricted reports whether the result lists all accesses; with a full network it lists only the refused ones.
func (r Run) Restricted() bool {
	return r.Result != nil && r.Result.Network != nil && r.Result.Network.Mode != workorder.NetworkFull
}

func place(h workorder.NetworkHost) string { return fmt.Sprintf("%s %d %s", h.Host, h.Port, h.Status) }

// hostOf parses an event, whose Name is host:port or a host.
func hostOf(e workorder.Event) (workorder.NetworkHost, bool) {
	h := workorder.NetworkHost{Host: e.Name, Protocol: "tcp", Status: workorder.NetworkStatus(e.Status), Count: 1, Reason: e.Text, Rule: e.Fix}
	if host, port, err := net.SplitHostPort(e.Name); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return h, false
		}
		h.Host, h.Port = host, uint16(n)
	} else {
		h.Protocol = "dns"
	}
	if strings.HasPrefix(e.Fix, "gateway:") || strings.Contains(h.Host, " ") {
		return h, false // a feature of the model's provider
	}
	if e.By != "" {
		h.By = []string{e.By}
	}
	return h, h.Host != ""
}

// Learned is the proposal for a task's network.
type Learned struct {
	TaskID   string                `json:"task_id"`
	Attempts []int                 `json:"attempts"` // those with a record
	Mode     workorder.NetworkMode `json:"mode"`     // of the last attempt whose mode is known
	Proposal
}

// Learn proposes rules for all hosts that the attempts of a task, oldest first, tried to reach.
func Learn(taskID string, runs []Run, o Options) (Learned, error) {
	l := Learned{TaskID: taskID, Attempts: []int{}}
	var hosts []workorder.NetworkHost
	restricted := false
	for _, run := range runs {
		found := run.Hosts()
		l.Mode = cmp.Or(run.mode(), l.Mode)
		restricted = restricted || run.Restricted()
		if len(found) > 0 || run.Restricted() {
			l.Attempts = append(l.Attempts, run.Number)
		}
		hosts = append(hosts, found...)
	}
	if l.Proposal = Propose(hosts, o); len(l.Allow) > 0 || restricted {
		return l, nil
	}
	why := "no attempt reached its network phase"
	if l.Mode == workorder.NetworkFull {
		why = "it ran with network: full, which records nothing"
	}
	return l, exiterr.New(workorder.ExitGeneral, fmt.Errorf("no network access of task %s is recorded: %s", taskID, why),
		"run it once with network: {mode: restricted, learn: true}")
}

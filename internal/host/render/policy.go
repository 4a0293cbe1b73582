package render

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/policy"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxRefused bounds the summary's lists of hosts and of Docker requests; the result has
// all of them.
const maxRefused = 5

// networkText describes an attempt to reach a host and its result, and the line in the
// project file that would allow it.
func networkText(e workorder.Event) string {
	said := words("network:", oneLine(e.Status), oneLine(e.Name))
	if by := oneLine(e.By); by != "" {
		said += " for " + by
	}
	fix, reason := oneLine(e.Fix), oneLine(e.Text)
	switch {
	case strings.HasPrefix(fix, "gateway:"): // a feature that would run at the model's provider
		return said + `: allow it with "` + fix + `" in the project file`
	case fix != "" && e.Status == string(workorder.NetworkRefused):
		return said + `: allow it with "` + policy.Line(fix) + `" under network.allow`
	case fix != "" && e.Status == string(workorder.NetworkLearned):
		return said + `: it needs "` + policy.Line(fix) + `" under network.allow`
	case reason != "":
		return said + ": " + reason
	}
	return said
}

func guardText(e workorder.Event) string {
	said := words("docker: refused", ruleOf(oneLine(e.Name)))
	if by := oneLine(e.By); by != "" {
		said += " for " + by
	}
	if text := strings.TrimPrefix(oneLine(e.Text), "rule "+oneLine(e.Name)+": "); text != "" {
		said += ": " + text
	}
	return said
}

func ruleOf(name string) string {
	if name == "" {
		return ""
	}
	return "(rule " + name + ")"
}

func restoredText(e workorder.Event) string {
	said := words("settings of agents:", oneLine(e.Path), "is that of the base branch")
	if text := oneLine(e.Text); text != "" {
		said += ": " + text
	}
	return said
}

// HostPort is a host with its port; without one if it is 0.
func HostPort(h workorder.NetworkHost) string {
	host := oneLine(h.Host)
	if h.Port != 0 {
		host = net.JoinHostPort(host, strconv.Itoa(int(h.Port)))
	}
	switch p := oneLine(h.Protocol); p {
	case "", "tcp":
		return host
	default:
		return host + "/" + p
	}
}

// network lists the refused places outside, and docker the requests that the guard refused.
func (s *summary) network(r *workorder.Result) {
	if r.Network == nil {
		return
	}
	var refused []workorder.NetworkHost
	learned := map[string]bool{} // a connection looks the name up first: both are one place
	for _, h := range r.Network.Hosts {
		switch h.Status {
		case workorder.NetworkRefused:
			refused = append(refused, h)
		case workorder.NetworkLearned:
			learned[h.Host] = true
		}
	}
	var lines []string
	for i, h := range refused {
		if i == maxRefused {
			lines = append(lines, fmt.Sprintf("and %d more", len(refused)-i))
			break
		}
		line := words(s.p.as(yellow, "refused"), HostPort(h)+times(h.Count), first(h.By))
		if rule := oneLine(h.Rule); rule != "" {
			line += s.p.as(dim, "   "+policy.Line(rule))
		} else if reason := oneLine(h.Reason); reason != "" {
			line += ": " + reason
		}
		lines = append(lines, line)
	}
	if len(learned) > 0 {
		lines = append(lines, fmt.Sprintf("%d more would have been refused without learn", len(learned)))
	}
	if len(lines) == 0 {
		return
	}
	lines = append(lines, s.p.as(dim, "sandbox-agent policy learn "+oneLine(r.TaskID)+" proposes rules"))
	for i, l := range lines {
		s.row(label(i, "network"), l)
	}
}

func (s *summary) docker(r *workorder.Result) {
	for i, f := range r.Refusals {
		if i == maxRefused {
			s.row("", fmt.Sprintf("and %d more", len(r.Refusals)-i))
			break
		}
		s.row(label(i, "docker"), words(s.p.as(yellow, "refused"), ruleOf(oneLine(f.Rule))+times(f.Count), "for", oneLine(f.By)+":", cut(oneLine(f.Text), maxReason)))
	}
}

// maxReason bounds the reason of a refused request, in columns.
const maxReason = 200

func times(n int64) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf(" ×%d", n)
}

func first(by []string) string {
	if len(by) == 0 {
		return ""
	}
	return "for " + oneLine(by[0])
}

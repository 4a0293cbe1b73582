package policy

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bare is a rule without what makes it an item of a YAML list, which is how boxes
// name rules.
func Bare(line string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(line), "- "), `"'`)
}

// Line is a rule as an item of a YAML list; it may be one already.
func Line(rule string) string {
	rule = Bare(rule)
	if r, err := workorder.ParseAllowRule(rule); err == nil {
		return r.Line()
	}
	return "- '" + strings.ReplaceAll(rule, "'", "''") + "'" // of an event that no box of ours wrote
}

// Run is what one attempt recorded.
type Run struct {
	Number int                   // of the attempt
	Asked  workorder.NetworkMode // what its order asks for; empty means there is no order
	Result *workorder.Result     // nil means there is none
	Events []workorder.Event
}

// mode is what the attempt ran with, or was asked to; empty means that is not known.
func (r Run) mode() workorder.NetworkMode {
	if r.Result != nil && r.Result.Network != nil {
		return r.Result.Network.Mode
	}
	return r.Asked
}

// Hosts is what the attempt reached for: what its result says, and what only its
// events do, as of a run that was lost.
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

// Restricted reports whether anything can be known of the attempt: of a full network
// only what was refused is.
func (r Run) Restricted() bool {
	return r.Result != nil && r.Result.Network != nil && r.Result.Network.Mode != workorder.NetworkFull
}

func place(h workorder.NetworkHost) string {
	return fmt.Sprintf("%s %d %s", h.Host, h.Port, h.Status)
}

// hostOf reads an event, whose Name is host:port, or a host without one.
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
		return h, false // what the model's provider would run: no place of the network's
	}
	if e.By != "" {
		h.By = []string{e.By}
	}
	return h, h.Host != ""
}

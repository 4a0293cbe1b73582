package policy

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bare is a rule without the syntax of an item of a YAML list; boxes report rules as such items.
func Bare(line string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(line), "- "), `"'`)
}

// Line is a rule as an item of a YAML list; it may already be one.
func Line(rule string) string {
	rule = Bare(rule)
	if r, err := workorder.ParseAllowRule(rule); err == nil {
		return r.Line()
	}
	return "- '" + strings.ReplaceAll(rule, "'", "''") + "'" // from an event that was not written by this program
}

// Run is the record of one attempt.
type Run struct {
	Number int                   // of the attempt
	Asked  workorder.NetworkMode // the mode of its order; empty if there is no order
	Result *workorder.Result     // nil if there is none
	Events []workorder.Event
}

// mode is the network mode that the attempt ran with, or that of its order; empty if unknown.
func (r Run) mode() workorder.NetworkMode {
	if r.Result != nil && r.Result.Network != nil {
		return r.Result.Network.Mode
	}
	return r.Asked
}

// Hosts are the places that the attempt tried to reach: those of its result, and those
// only in its events, for example of a lost run.
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

// Restricted reports whether the result shows all accesses of the attempt: with a full
// network it shows only the refused ones.
func (r Run) Restricted() bool {
	return r.Result != nil && r.Result.Network != nil && r.Result.Network.Mode != workorder.NetworkFull
}

func place(h workorder.NetworkHost) string {
	return fmt.Sprintf("%s %d %s", h.Host, h.Port, h.Status)
}

// hostOf reads the place of an event, whose Name is host:port or a host alone.
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
		return h, false // a feature of the model's provider, not a place of the network
	}
	if e.By != "" {
		h.By = []string{e.By}
	}
	return h, h.Host != ""
}

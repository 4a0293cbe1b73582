package app

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/netrules"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// LearnNetwork proposes network rules from what all attempts of a task reached for.
func (p Projects) LearnNetwork(ctx context.Context, id string, o netrules.Options) (l netrules.Learned, err error) {
	rec, err := p.Tasks().Attempt(ctx, id, 0)
	if err != nil {
		return l, err
	}
	var runs []netrules.Run
	for _, attempt := range rec.Attempts() {
		past, err := rec.At(attempt.Number)
		if err != nil {
			return l, err
		}
		runs = append(runs, recordedNetwork(past))
	}
	return netrules.Learn(rec.TaskID, runs, o)
}

// recordedNetwork reads what an attempt reached for. A missing or damaged record has no addresses.
func recordedNetwork(rec *taskstore.Record) netrules.Run {
	run := netrules.Run{Number: rec.Number()}
	if b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.OrderFile)); err == nil {
		if order, err := workorder.DecodeOrder(b); err == nil {
			run.Asked = order.Network.Mode
		}
	}
	if res, err := outcome.ReadResult(rec); err == nil {
		run.Result = res
	}
	_ = outcome.Events(rec.Dir, func(e workorder.Event) {
		if e.Type == workorder.EventNetwork {
			run.Events = append(run.Events, e)
		}
	})
	return run
}

// AllowsHost reports whether rules allow a host, and the reason. Without rules, those of a project count.
func (p Projects) AllowsHost(project string, rules []string, host string) (ok bool, reason string, err error) {
	target, err := parseHost(host)
	if err != nil {
		return false, "", err
	}
	network := netrules.Policy{Mode: workorder.NetworkRestricted}
	if len(rules) == 0 {
		p, err := resolve.Load(&TaskFlags{Project: project})
		if err != nil {
			return false, "", err
		}
		network.Mode, rules, network.Services = p.Network.Mode, p.Network.Allow, p.Services
	}
	for _, s := range rules {
		rule, err := parseRule(s)
		if err != nil {
			return false, "", err
		}
		network.Rules = append(network.Rules, rule)
	}
	reason, ok = network.Allows(target)
	return ok, reason, nil
}

// parseHost reads host and port. It accepts more than a rule may have, since users also ask about hosts that no
// rule can allow.
func parseHost(text string) (workorder.AllowRule, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), ""
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		n, err := strconv.ParseUint(cmp.Or(port, "0"), 10, 16)
		if err != nil {
			return workorder.AllowRule{}, Usagef("%q: %q is not a port from 1 to 65535", text, port)
		}
		return workorder.AllowRule{Host: addr.Unmap().WithZone("").String(), Port: uint16(n)}, nil
	}
	target, err := parseRule(text)
	if err == nil && target.Sub {
		err = Usagef("%s is not a single host: give one host", text)
	}
	return target, err
}

func parseRule(s string) (workorder.AllowRule, error) {
	rule, err := projects.AllowRule(s)
	if err != nil {
		return workorder.AllowRule{}, Usagef("%q: %w", s, err)
	}
	return workorder.ParseAllowRule(rule)
}

package harness

import "github.com/sandbox-agent/sandbox-agent/workorder"

// networkBriefing tells an agent what network it has, empty for all of it. Without it a name that does not
// resolve looks like a fault of the box, which it would look for.
func networkBriefing(n workorder.Network) string {
	const rest = " This is the policy of whoever gave you the task: do not look for ways around it. If you cannot do something without, go on without it and name the host and port in your last message."
	switch {
	case n.Mode == workorder.NetworkNone:
		return "This sandbox has no network: only its own services, its Docker engine and git reads of the task's repository are there." + rest
	case n.Mode == workorder.NetworkRestricted && !n.Learn:
		return "The network of this sandbox is restricted to what the project allows. Other names do not resolve, other connections are refused, and plain HTTP answers 403 with the line that would allow it." + rest
	}
	return ""
}

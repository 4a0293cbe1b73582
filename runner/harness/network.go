package harness

import "github.com/sandbox-agent/sandbox-agent/workorder"

// networkBriefing describes the network policy, so that the agent does not search for the cause of a refused name.
func networkBriefing(n workorder.NetworkPolicy) string {
	const rest = " The person who gave you the task set this policy: do not look for ways around it. If something is impossible " +
		"because of it, continue without it and name the host and port in your last message."
	switch {
	case n.Mode == workorder.NetworkNone:
		return "This sandbox has no network except its own services, its Docker engine and git reads of the task's repository." + rest
	case n.Mode == workorder.NetworkRestricted && !n.Learn:
		return "The network of this sandbox is restricted to the hosts that the project allows. Other names do not resolve, other " +
			"connections are refused, and plain HTTP answers 403 with the line that would allow it." + rest
	}
	return ""
}

package policy

import (
	"cmp"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Learned is what can be learned from a task's attempts about its network.
type Learned struct {
	TaskID   string                `json:"task_id"`
	Attempts []int                 `json:"attempts"` // those with a record
	Mode     workorder.NetworkMode `json:"mode"`     // of the last attempt whose mode is known
	Proposal
}

// Learn proposes rules for all places that the attempts of a task, oldest first, tried to reach.
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
	why := "no attempt got as far as its network"
	if l.Mode == workorder.NetworkFull {
		why = "it ran with network: full, of which nothing is recorded"
	}
	return l, fault.New(workorder.ExitGeneral, fmt.Errorf("nothing is known of what task %s reached for: %s", taskID, why),
		"run it once with network: {mode: restricted, learn: true}")
}

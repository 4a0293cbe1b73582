package workorder

// Standalone makes the order one for a standalone sandbox: the box is set up as for a task, and then serves clients by
// package wire. Nothing is pushed.
type Standalone struct {
	// IdleTimeoutMS, TTLMS and OwnerTimeoutMS end the box as in wire.Config, in milliseconds; 0 means never.
	IdleTimeoutMS  int64 `json:"idle_ms,omitempty"`
	TTLMS          int64 `json:"life_ms,omitempty"`
	OwnerTimeoutMS int64 `json:"silence_ms,omitempty"`
}

const (
	// RepoIn is the path of a git bundle of a repository on the host; CloneURL names it then. The host writes it.
	RepoIn = "/var/lib/sandbox-agent/repo.bundle"
	// WireSocket is the socket of a standalone box; only root can connect.
	WireSocket = "/run/sandbox-agent-wire/wire.sock"
)

func (o *Order) checkStandalone(p *problems) {
	p.require((o.Mode == ModeStandalone) == (o.Standalone != nil), "mode %s: stand is required in mode stand and only there", o.Mode)
	if s := o.Standalone; s != nil {
		p.require(s.IdleTimeoutMS >= 0 && s.TTLMS >= 0 && s.OwnerTimeoutMS >= 0,
			"stand: durations must not be negative: idle_ms %d, life_ms %d, silence_ms %d", s.IdleTimeoutMS, s.TTLMS, s.OwnerTimeoutMS)
		p.require(o.Review == nil && o.Rebase == nil && o.PR == nil && len(o.Validate) == 0 && o.Task == "",
			"mode stand has no task: remove text, checks, review, rebase and pull request")
	}
}

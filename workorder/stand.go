package workorder

// Stand makes the order one for a standalone sandbox: the box is set up as for a task, and then serves clients by
// package wire. Nothing is pushed.
type Stand struct {
	// IdleMS, LifeMS and SilenceMS end the box as in wire.Config, in milliseconds; 0 means never.
	IdleMS    int64 `json:"idle_ms,omitempty"`
	LifeMS    int64 `json:"life_ms,omitempty"`
	SilenceMS int64 `json:"silence_ms,omitempty"`
}

const (
	// RepoIn is the path of a git bundle of a repository on the host; CloneURL names it then. The host writes it.
	RepoIn = "/var/lib/sandbox-agent/repo.bundle"
	// WireSocket is the socket of a standalone box; only root can connect.
	WireSocket = "/run/sandbox-agent-wire/wire.sock"
)

func (o *Order) checkStand(c *check) {
	c.that((o.Mode == ModeStand) == (o.Stand != nil), "mode %s: stand is required in mode stand and only there", o.Mode)
	if s := o.Stand; s != nil {
		c.that(s.IdleMS >= 0 && s.LifeMS >= 0 && s.SilenceMS >= 0,
			"stand: durations must not be negative: idle %d, life %d, silence %d ms", s.IdleMS, s.LifeMS, s.SilenceMS)
		c.that(o.Review == nil && o.Rebase == nil && o.PR == nil && len(o.Validate) == 0 && o.Task == "",
			"mode stand has no task: remove text, checks, review, rebase and pull request")
	}
}

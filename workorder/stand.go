package workorder

// Stand makes of an order a sandbox without a task: the box is made ready as for a task, up to setup, and then serves whoever dials it over package wire.
// Nothing is pushed.
type Stand struct {
	// IdleMS, LifeMS and SilenceMS end the box as those of wire.Config do, in milliseconds; 0 never does.
	IdleMS    int64 `json:"idle_ms,omitempty"`
	LifeMS    int64 `json:"life_ms,omitempty"`
	SilenceMS int64 `json:"silence_ms,omitempty"`
}

const (
	// RepoIn is where the host puts a repository of its own machine for a standing order, as a bundle of git's; CloneURL names it then.
	RepoIn = "/var/lib/sandbox-agent/repo.bundle"
	// WireSocket is where the box of a standing order serves; root alone reaches it.
	WireSocket = "/run/sandbox-agent-wire/wire.sock"
)

func (o *Order) checkStand(c *check) {
	c.that((o.Mode == ModeStand) == (o.Stand != nil), "mode %s and stand do not go together: stand has one, no other mode has", o.Mode)
	if s := o.Stand; s != nil {
		c.that(s.IdleMS >= 0 && s.LifeMS >= 0 && s.SilenceMS >= 0, "stand has a time of less than nothing: idle %d, life %d, silence %d ms", s.IdleMS, s.LifeMS, s.SilenceMS)
		c.that(o.Review == nil && o.Rebase == nil && o.PR == nil && len(o.Validate) == 0 && o.Task == "", "a standing order has no task: neither text, checks, review, rebase nor pull request")
	}
}

package proof

import (
	"context"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// devLog is the name of the development server's log, next to those of the checks.
const devLog = "dev"

// visit views the side's pages.
func (r *sides) visit(ctx context.Context, s *side) {
	if r.Visit == nil {
		return
	}
	if ctx.Err() != nil {
		r.because(workorder.ReasonPages, "the pages of %s were not viewed: %v", s.name, context.Cause(ctx))
		return
	}
	views, err := r.Visit(ctx, Site{Side: s.name, Dir: s.tree, User: s.user, Env: r.env(s), Log: r.logName(s, devLog)})
	if s.settled != nil {
		s.settled.KillOthers() // the server of one side must not answer for the other
	}
	s.views = views
	if err != nil {
		r.because(workorder.ReasonPages, "pictures of %s: %v", s.name, err)
		if len(views) == 0 {
			r.say("%s: no page was viewed: %v", s.name, err)
			return
		}
	}
	r.say("%s: %d views of pages", s.name, len(views))
}

func pages(base, head []View) []workorder.PageProof {
	out := []workorder.PageProof{}
	at := func(v View) *workorder.PageProof {
		i := slices.IndexFunc(out, func(p workorder.PageProof) bool { return p.Path == v.Path && p.Width == v.Width })
		if i < 0 {
			i = len(out)
			out = append(out, workorder.PageProof{Path: v.Path, Width: v.Width})
		}
		return &out[i]
	}
	for _, v := range head {
		at(v).Head = new(v.Seen)
	}
	for _, v := range base {
		at(v).Base = new(v.Seen)
	}
	return out
}

package notebook

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Session runs cells: a *sandbox.Interpreter.
type Session interface {
	Run(ctx context.Context, c sandbox.Cell) (sandbox.CellResult, error)
}

// Options are how a notebook runs.
type Options struct {
	// Timeout interrupts a cell, which has failed then; 0 never does.
	Timeout time.Duration
	// AllowErrors goes on after a cell that failed.
	AllowErrors bool
	// Progress, if non-nil, receives the number of each cell, from 1, before it runs.
	Progress func(cell, of int)
}

// Report is what became of a notebook's cells.
type Report struct {
	Code int `json:"code_cells"`
	Ran  int `json:"ran"` // also those that failed
	// Failed are the places of cells that failed, among all cells from 1 on.
	Failed []int `json:"failed"`
	// Error is the name of what the first of them failed with, and Message what it says.
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
	// Stopped reports that cells were left that did not run.
	Stopped  bool `json:"stopped"`
	TimedOut bool `json:"timed_out"`
	// Ended reports that the session's interpreter is gone.
	Ended bool `json:"ended"`
}

// Tags of cells that Jupyter's own tools heed.
const (
	tagSkip   = "skip-execution"
	tagRaises = "raises-exception" // it is to fail, and does not stop the others
)

// Run runs the cells one after the other and fills in what they print and show. It stops after one that failed. The outputs are those of this run alone: a cell that did not run has
// none. After an error, too, the notebook has what there was until then.
func (n *Notebook) Run(ctx context.Context, s Session, o Options) (r Report, err error) {
	r.Failed = []int{}
	for _, c := range n.cells {
		if !c.code {
			continue
		}
		r.Code++
		if err := c.fill(0, nil); err != nil {
			return r, err
		}
	}
	over := false
	for i, c := range n.cells {
		if !c.code || c.has(tagSkip) || strings.TrimSpace(c.source) == "" {
			continue
		}
		if over {
			r.Stopped = true
			break
		}
		if o.Progress != nil {
			o.Progress(i+1, len(n.cells))
		}
		r.Ran++
		res, err := n.cell(ctx, s, c, r.Ran, o.Timeout)
		if err != nil {
			r.Stopped = true
			return r, err
		}
		r.Ended = res.Ended
		if res.OK || c.has(tagRaises) && !res.Ended {
			continue
		}
		r.note(i+1, res)
		over = res.Ended || !o.AllowErrors
	}
	return r, nil
}

// note keeps what a cell failed with.
func (r *Report) note(place int, res sandbox.CellResult) {
	r.Failed = append(r.Failed, place)
	r.TimedOut = r.TimedOut || res.TimedOut
	if len(r.Failed) == 1 {
		r.Error, r.Message = reason(res)
	}
}

func (n *Notebook) cell(ctx context.Context, s Session, c cell, count int, timeout time.Duration) (sandbox.CellResult, error) {
	out := newOutputs(count)
	res, err := s.Run(ctx, sandbox.Cell{
		Code: c.source, Timeout: timeout, Display: out.show, Stdout: writer{out, "stdout"}, Stderr: writer{out, "stderr"},
	})
	if err != nil {
		res = sandbox.CellResult{Error: "Interrupted", Message: "the cell's end is not known"}
	}
	if ferr := c.fill(count, out.end(res)); err == nil {
		err = ferr
	}
	return res, err
}

package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/internal/testreport"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// MaxBaseRunAge bounds the reuse of base's results: an expired certificate or a date changes the outcome of the same commit.
const MaxBaseRunAge = 7 * 24 * time.Hour

// BaseRuns holds the results of the checks on a commit. A later proof uses them for base.
type BaseRuns struct {
	Commit string    `json:"commit"`
	Made   time.Time `json:"made"` // before the first check
	Bounds Bounds    `json:"bounds"`
	Checks []BaseRun `json:"checks"`
}

// Bounds are what a check may access and use. They do not affect setup, but decide how a check ends.
type Bounds struct {
	Network workorder.NetworkPolicy `json:"network"`
	Limits  workorder.Limits        `json:"limits"`
	// Time is that of one check, in a detected order.
	Time time.Duration `json:"time,omitempty"`
	// Secrets are the names of the secrets that checks receive.
	Secrets []string `json:"secrets,omitempty"`
}

func boundsOf(o *workorder.Order) Bounds {
	b := Bounds{Network: o.Network, Limits: o.Limits}
	if o.Found {
		b.Time = o.CheckLimit()
	}
	for _, n := range o.SecretNames {
		if use := o.SecretUse(n); use == workorder.SecretForCommands || use == workorder.SecretForValidate {
			b.Secrets = append(b.Secrets, n)
		}
	}
	slices.Sort(b.Secrets)
	return b
}

func (b Bounds) equal(o Bounds) bool {
	return b.Network.Mode == o.Network.Mode && b.Network.Learn == o.Network.Learn && slices.Equal(b.Network.Allow, o.Network.Allow) &&
		slices.Equal(b.Network.DNS, o.Network.DNS) && b.Limits == o.Limits && b.Time == o.Time && slices.Equal(b.Secrets, o.Secrets)
}

// BaseRun is the result of one check.
type BaseRun struct {
	Name   string             `json:"name"`
	Run    string             `json:"run"`
	Result workorder.CheckRun `json:"result"`
	Report *testreport.Report `json:"report,omitempty"` // nil if there was none
	Log    []byte             `json:"log,omitempty"`    // empty if it was too long
}

const maxKnownLog = 1 << 20

// proveBase runs base, with half of the time. What its checks wrote, and their results, are kept for later proofs.
func (r *run) proveBase(ctx context.Context) {
	half, done := context.WithTimeoutCause(ctx, remaining(ctx)/2, errShare)
	defer done()
	began := time.Now().UTC()
	r.side(half, r.base)
	r.rest(ctx, r.base)
	if r.base.undo == nil || r.base.bare || r.base.room == nil || len(r.base.room.Missing()) > 0 {
		return
	}
	known := &BaseRuns{Commit: r.base.commit, Made: began, Bounds: boundsOf(r.Order)}
	for _, c := range r.checks {
		if len(c.base.done) == 0 {
			return
		}
		known.Checks = append(known.Checks, r.known(c))
	}
	if err := r.base.undo(ctx); err != nil {
		r.warn("files that the checks left in the checkout of base could not be removed: %v", err)
		return
	}
	if err := r.KeepBase(ctx, known); err != nil {
		r.warn("what the checks on base left is not kept for later tasks: %v", err)
	}
}

func (r *notes) known(c *check) BaseRun {
	k := BaseRun{Name: c.Name, Run: c.Run, Result: c.base.done[0], Report: c.base.reports[0]}
	out, err := os.OpenRoot(r.OutDir)
	if err != nil {
		return k
	}
	defer out.Close()
	k.Log, _ = safeopen.Read(out, filepath.FromSlash(k.Result.Log), nil, maxKnownLog) // without it the result still counts
	return k
}

// young reports whether the checks ran recently, by a clock that was not set back since.
func (k *BaseRuns) young(now time.Time) bool {
	age := now.Sub(k.Made)
	return age >= 0 && age < MaxBaseRunAge
}

// Of returns the results of an order's checks on a commit if all are there, within the same bounds, and recent; else nil.
func (k *BaseRuns) Of(commit string, o *workorder.Order) (list []BaseRun) {
	if k == nil || !k.young(time.Now()) || k.Commit != commit || !k.Bounds.equal(boundsOf(o)) {
		return nil
	}
	for _, c := range o.Validate {
		i := slices.IndexFunc(k.Checks, func(b BaseRun) bool { return b.Name == c.Name && b.Run == c.Run })
		if i < 0 {
			return nil
		}
		list = append(list, k.Checks[i])
	}
	return list
}

// know reuses earlier results of base. Pages must be visited again.
func (r *run) know() bool {
	list := r.BaseRuns.Of(r.base.commit, r.Order)
	if r.Visit != nil || len(list) == 0 {
		return false
	}
	for i, c := range r.checks {
		k := list[i]
		k.Result.Log = r.logName(r.base, c.file)
		if err := r.keepLog(k); err != nil {
			r.warn("%s on base: %v", c.Name, err)
		}
		c.base = runs{done: []workorder.CheckRun{k.Result}, reports: []*testreport.Report{k.Report}}
		r.say("%s on base: known from an earlier task", c.Name)
	}
	r.base.ready = true // ready once its files exist
	return true
}

// keepLog writes the log of a known run.
func (r *notes) keepLog(k BaseRun) error {
	at := filepath.Join(r.OutDir, filepath.FromSlash(k.Result.Log))
	if err := os.WriteFile(at, k.Log, 0o644); err != nil {
		return fmt.Errorf("keep the log of an earlier run: %w", err)
	}
	return nil
}

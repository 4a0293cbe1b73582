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

// BaseRuns holds the results of the checks on a commit from before any code of a task could run.
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
	// Secrets are the names of the secrets that checks receive.
	Secrets []string `json:"secrets,omitempty"`
}

func boundsOf(o *workorder.Order) Bounds {
	b := Bounds{Network: o.Network, Limits: o.Limits}
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
		slices.Equal(b.Network.DNS, o.Network.DNS) && b.Limits == o.Limits && slices.Equal(b.Secrets, o.Secrets)
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

// RunBase runs the checks in the work tree before any code of the task. It returns nil if a check did not run to its end.
func RunBase(ctx context.Context, c Config, commit string) *BaseRuns {
	c.Rooms = nil
	r := &run{sides: &sides{stores: &stores{notes: &notes{Config: c}}}, proof: &workorder.Proof{}}
	if r.limit == 0 {
		r.limit = CommandTimeout
	}
	r.plan()
	s := &side{name: "base", commit: commit, tree: c.Workspace, home: c.Home, user: c.User}
	r.base = s
	root, err := os.OpenRoot(c.Workspace)
	if err != nil {
		r.warn("run the checks on the base: %v", err)
		return nil
	}
	defer root.Close()
	s.root = root
	s.before = r.lookAround(s)
	s.settled = s.before
	defer r.rest(ctx, s)
	known := &BaseRuns{Commit: commit, Made: time.Now().UTC(), Bounds: boundsOf(c.Order)}
	for i, one := range r.checks {
		one.skip = false // this is the work tree
		r.check(ctx, s, one, len(r.checks)-1-i, "")
		if len(one.base.done) == 0 {
			known = nil
		}
		if known != nil {
			known.Checks = append(known.Checks, r.known(one))
		}
	}
	return known
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

// know reuses recent results of base if they are of the same checks on the same commit within the same bounds.
func (r *run) know() bool {
	if r.BaseRuns == nil || !r.BaseRuns.young(time.Now()) || r.BaseRuns.Commit != r.base.commit ||
		!r.BaseRuns.Bounds.equal(boundsOf(r.Order)) ||
		r.Visit != nil ||
		len(r.BaseRuns.Checks) != len(r.checks) {
		return false
	}
	for i, c := range r.checks {
		if k := r.BaseRuns.Checks[i]; k.Name != c.Name || k.Run != c.Run {
			return false
		}
	}
	for i, c := range r.checks {
		k := r.BaseRuns.Checks[i]
		k.Result.Log = r.logName(r.base, c.file)
		if err := r.keepLog(k); err != nil {
			r.warn("%s on base: %v", c.Name, err)
		}
		c.base = runs{done: []workorder.CheckRun{k.Result}, reports: []*testreport.Report{k.Report}}
		r.say("%s on base: as before the task", c.Name)
	}
	r.base.ready = true // ready once its files exist
	return true
}

// keepLog writes the log of a known run, unless it is this task's own.
func (r *notes) keepLog(k BaseRun) error {
	at := filepath.Join(r.OutDir, filepath.FromSlash(k.Result.Log))
	if _, err := os.Lstat(at); err == nil {
		return nil
	}
	if err := os.WriteFile(at, k.Log, 0o644); err != nil {
		return fmt.Errorf("keep the log of an earlier run: %w", err)
	}
	return nil
}

package proof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/testreport"
	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxPrinted bounds the log that a report is read from, in bytes. A log of more lacks its middle: runner keeps the first
// and the last 8 MiB, and tests that are not in it would be taken for deleted.
const maxPrinted = 16 << 20

// side is one commit and its checkout.
type side struct {
	name   string // base or head
	commit string
	// missing: the commit is not there.
	missing bool
	// store is ours, with verified objects of the commit.
	store git.Repo
	room  Room             // nil means it runs where we are
	user  *proc.Credential // whom its commands run as
	place string           // below the user's home, everything of the side
	tree  string           // in it, the checkout
	home  string           // in it, HOME
	root  *os.Root         // of tree
	done  int              // setup commands whose outcome is there
	// bare: setup fails over what an earlier one left, so that the side begins without.
	bare bool
	took time.Duration
	// ready: its files are there and setup has passed. setupFailed says how it did not.
	ready       bool
	setupFailed string
	// servers: setup left processes that checks may need.
	servers bool
	before  *proc.Crowd // whom no sweep touches; nil while nothing of the side runs
	settled *proc.Crowd // with what setup left
	views   []View
}

// side makes the checkout and runs setup and checks in it.
func (r *sides) side(ctx context.Context, s *side) {
	began := time.Now()
	defer func() { s.took = time.Since(began) }()
	if err := r.enter(ctx, s); err != nil {
		r.because(workorder.ReasonNoPlace, "%s was not run: there is no clean place for it: %v", s.name, err)
		return
	}
	if err := r.bring(ctx, s); err != nil {
		r.because(workorder.ReasonCheckout, "%s was not run: %v", s.name, err)
		return
	}
	if s.ready = r.setup(ctx, s, len(r.checks)); !s.ready {
		return
	}
	for i, c := range r.checks {
		r.check(ctx, s, c, len(r.checks)-1-i, "")
	}
	r.visit(ctx, s)
}

// bring puts the side's files into its place.
func (r *sides) bring(ctx context.Context, s *side) error {
	if err := r.checkout(ctx, s); err != nil {
		return fmt.Errorf("it cannot be checked out: %w", err)
	}
	if r.Prepare != nil {
		if err := r.Prepare(ctx, s.tree, s.user); err != nil {
			r.warn("prepare the checkout of %s: %v", s.name, err)
		}
	}
	return nil
}

// outside is where a path of the side lies for us.
func (s *side) outside(path string) string {
	if s.room == nil {
		return path
	}
	return s.room.Outside(path)
}

func setupName(i int) string { return fmt.Sprintf("setup-%d", i+1) }

// setup runs the setup commands. After is the number of commands that wait behind it. A command that was not made to run twice in one work
// tree (mkdir) fails over what an earlier setup left there; then all of them run without that.
func (r *sides) setup(ctx context.Context, s *side, after int) bool {
	n := len(r.reasons)
	if r.runSetup(ctx, s, after) {
		return true
	}
	if s.setupFailed == "" || s.bare || s.room == nil || !s.room.Begins().Over || ctx.Err() != nil {
		return false
	}
	r.say("%s: setup runs again in an empty work tree: %s", s.name, s.setupFailed)
	r.reasons, s.setupFailed, s.bare = slices.Delete(r.reasons, n, len(r.reasons)), "", true
	err := r.leave(ctx, s)
	if err == nil {
		err = r.enter(ctx, s)
	}
	if err != nil {
		r.because(workorder.ReasonNoPlace, "%s was not run: there is no clean place for it: %v", s.name, err)
		return false
	}
	if err := r.bring(ctx, s); err != nil {
		r.because(workorder.ReasonCheckout, "%s was not run: %v", s.name, err)
		return false
	}
	return r.runSetup(ctx, s, after)
}

func (r *sides) runSetup(ctx context.Context, s *side, after int) bool {
	s.before = r.lookAround(s)
	for i, line := range r.Order.Setup {
		if i < s.done {
			continue
		}
		o, err := r.command(ctx, s, line, setupName(i), len(r.Order.Setup)-1-i+after)
		switch {
		case err != nil:
			r.because(workorder.ReasonSetup, "%s was not run: setup command %q: %v%s", s.name, line, err, r.withheld())
			return false
		case o.Err != nil && r.Order.Found && (s.bare || s.room == nil || !s.room.Begins().Over):
			// It failed before the agent, too, and the checks were run.
		case o.Err != nil:
			s.setupFailed = fmt.Sprintf("setup command %q exited with %d (%s)", line, o.ExitCode, r.logName(s, setupName(i)))
			r.because(workorder.ReasonSetup, "%s was not run: %s%s", s.name, s.setupFailed, r.withheld())
			return false
		}
	}
	s.settled = r.lookAround(s)
	s.servers = s.servers || s.settled.More(s.before) || r.extraContainers(ctx) > 0
	return true
}

// withheld reminds of what setup does not get here.
func (r *sides) withheld() string {
	for _, n := range r.Order.SecretNames {
		if r.Order.SecretUse(n) == workorder.ForSetup {
			return fmt.Sprintf("; it runs without the secret %s, which is for setup only: code of the task's commits runs in it", n)
		}
	}
	return ""
}

// check runs one check and reads its report.
func (r *sides) check(ctx context.Context, s *side, c *check, after int, suffix string) {
	if c.skip {
		return
	}
	mark, err := testreport.MarkFiles(s.root)
	if err != nil {
		r.warn("%s on %s: %v", c.Name, s.name, err)
	}
	asked := testreport.Ask(c.Run, s.manifest())
	o, err := r.command(ctx, s, asked.Line, c.file+suffix, after)
	if err != nil {
		if suffix == "" {
			r.because(workorder.ReasonCheck, "%s was not run on %s: %v", c.Name, s.name, err)
		} else {
			r.warn("%s was not repeated on %s: %v", c.Name, s.name, err)
		}
		return
	}
	res := workorder.CheckRun{ExitCode: o.ExitCode, Passed: o.Err == nil, DurationMS: o.Duration.Milliseconds(), Log: r.logName(s, c.file+suffix)}
	rep := r.report(s, c, mark, res.Log)
	r.forPeople(asked.Prints, res.Log)
	if rep != nil {
		n := rep.Counts()
		res.Tests = &n
	}
	runs := c.of(s)
	runs.done, runs.reports = append(runs.done, res), append(runs.reports, rep)
	verdict := "passed"
	if !res.Passed {
		verdict = fmt.Sprintf("failed (exit %d)", res.ExitCode)
	}
	r.say("%s on %s: %s in %s", c.Name, s.name, verdict, round(o.Duration))
}

// manifest is the side's package.json; empty if there is none that can be read.
func (s *side) manifest() []byte {
	const most = 1 << 20 // far more than any has
	b, err := untrusted.Read(s.root, "package.json", nil, most)
	if err != nil {
		return nil
	}
	return b
}

// forPeople puts the output for people in the place of a report that was asked for and has been read.
func (r *sides) forPeople(printed testreport.Format, log string) {
	if printed == testreport.None {
		return
	}
	path := filepath.Join(r.OutDir, filepath.FromSlash(log))
	err := func() error {
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.CreateTemp(filepath.Dir(path), ".readable-*")
		if err != nil {
			return err
		}
		defer os.Remove(out.Name()) // where it was not renamed
		err = errors.Join(testreport.Readable(printed, in, out), out.Close())
		if err != nil {
			return err
		}
		return os.Rename(out.Name(), path)
	}()
	if err != nil {
		r.warn("write %s for people: %v", log, err)
	}
}

// report is what the command left and printed.
func (r *sides) report(s *side, c *check, mark testreport.Mark, log string) *testreport.Report {
	f, err := os.Open(filepath.Join(r.OutDir, filepath.FromSlash(log)))
	if err != nil {
		r.warn("%s on %s: %v", c.Name, s.name, err)
		rep, _ := testreport.Read(s.root, mark, nil) // the warning stands for all that is missing
		return rep
	}
	defer f.Close()
	var rep *testreport.Report
	if fi, serr := f.Stat(); serr == nil && fi.Size() > maxPrinted {
		r.warn("%s on %s printed more than %d MiB: no report is read from that, let the command write one into a file", c.Name, s.name, maxPrinted>>20)
		rep, err = testreport.Read(s.root, mark, nil)
	} else {
		rep, err = testreport.Read(s.root, mark, f)
	}
	if err != nil {
		r.warn("%s on %s: %v", c.Name, s.name, err)
	}
	return rep
}

func (r *notes) logName(s *side, name string) string {
	return workorder.LogsDir + "/proof-" + s.name + "-" + name + ".log"
}

// command runs one command line and then stops what it left, setup's excepted. The error says that it
// was not run, or not to its end for no fault of its own. One may use half of the
// time that is left while others wait behind it.
func (r *sides) command(ctx context.Context, s *side, line, name string, after int) (Outcome, error) {
	if err := ctx.Err(); err != nil {
		return Outcome{}, context.Cause(ctx)
	}
	left, cause := remaining(ctx), errShare
	if after > 0 {
		left /= 2
	}
	if r.limit < left {
		left, cause = r.limit, errSlow
	}
	cctx, cancel := context.WithTimeoutCause(ctx, left, cause)
	defer cancel()
	o := r.Shell(cctx, Command{Name: "proof " + s.name + " " + name, Run: line, Dir: s.tree, Env: r.env(s), User: s.user, Log: r.logName(s, name)})
	if s.settled != nil {
		s.settled.Sweep() // a server left by one command must not answer the tests of the next
	}
	if o.Warning != "" {
		r.warn("%s on %s: %s", name, s.name, o.Warning)
	}
	switch {
	case o.Err == nil:
		o.ExitCode = 0
	case cctx.Err() != nil && errors.Is(context.Cause(cctx), errSlow):
		o.ExitCode = exitTimeout
	case cctx.Err() != nil:
		return o, fmt.Errorf("it was stopped after %s: %w", round(o.Duration), context.Cause(cctx))
	case o.ExitCode < 0:
		return o, fmt.Errorf("it cannot be started: %w", o.Err)
	}
	return o, nil
}

// env is the environment of a side's commands. Paths into the agent's home or work tree lead into the
// checkout's: PATH has a folder of the home in front, and a project may name folders of its own.
func (r *notes) env(s *side) []string {
	var env []string
	for _, kv := range r.Env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "HOME" || k == "PWD" || k == "OLDPWD" || k == "SANDBOX_AGENT_WORKSPACE" {
			continue
		}
		parts := strings.Split(v, ":")
		for i, p := range parts {
			parts[i] = r.moved(p, s)
		}
		env = append(env, k+"="+strings.Join(parts, ":"))
	}
	return append(env, "HOME="+s.home, "PWD="+s.tree, workspaceVar+s.tree)
}

const workspaceVar = "SANDBOX_AGENT_WORKSPACE="

// moved is a path in the agent's work tree or home as it is for a side.
func (r *notes) moved(path string, s *side) string {
	for _, m := range [][2]string{{r.Workspace, s.tree}, {r.Home, s.home}} {
		if rest, ok := strings.CutPrefix(path, m[0]); ok && m[0] != "" && (rest == "" || rest[0] == '/') {
			return m[1] + rest
		}
	}
	return path
}

// rest stops everything of a side.
func (r *sides) rest(ctx context.Context, s *side) {
	if s == nil || s.before == nil {
		return
	}
	if n := s.before.Sweep(); n > 0 {
		r.warn("%d processes of the checks on %s cannot be stopped", n, s.name)
	}
	s.before, s.settled = nil, nil
	r.removeContainers(ctx, "after "+s.name)
}

// containersTime bounds removing containers, which takes part of a second for some ten.
const containersTime = 30 * time.Second

// removeContainers makes sure that no container stands beside the checks that none of them started.
func (r *sides) removeContainers(ctx context.Context, when string) {
	if r.Containers == nil || ctx.Err() != nil && remaining(ctx) > 0 {
		return // stopped from outside: the box is about to go with all of them
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), containersTime)
	defer cancel()
	if err := r.Containers.Remove(ctx); err != nil {
		r.because(workorder.ReasonRemains, "containers that are not the project's own could not be removed %s, and may have changed what the checks saw: %v", when, err)
	}
}

func (r *sides) extraContainers(ctx context.Context) int {
	if r.Containers == nil {
		return 0
	}
	n, err := r.Containers.Extra(ctx)
	if err != nil {
		r.warn("%v", err)
	}
	return n
}

// resume brings a side that rests to where its checks can be repeated.
func (r *sides) resume(ctx context.Context, s *side) bool {
	if !s.ready {
		return false
	}
	if err := r.enter(ctx, s); err != nil {
		r.warn("checks on %s are not repeated: there is no clean place for them: %v", s.name, err)
		return false
	}
	if s.room != nil || s.tree == "" { // a new one, or base was known
		if err := r.bring(ctx, s); err != nil {
			r.warn("checks on %s are not repeated: %v", s.name, err)
			return false
		}
	} else if !s.servers {
		s.before = r.lookAround(s)
		s.settled = s.before
		return true
	}
	n := len(r.reasons)
	ok := r.setup(ctx, s, 1)
	s.setupFailed = "" // it passed when it counted
	for _, why := range r.reasons[n:] {
		r.warn("checks on %s are not repeated: %s", s.name, why.Detail)
	}
	r.reasons = slices.Delete(r.reasons, n, len(r.reasons))
	return ok
}

var notInFileName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// maxFileName bounds a check's part of a log's name, in bytes: with all around it, it is below the 255 of file systems.
const maxFileName = 100

// again ends the name of a repeat's log.
const again = "-again"

// fileName makes a file name of a check's name, different from those used.
func fileName(name string, used map[string]bool) string {
	base := strings.TrimLeft(notInFileName.ReplaceAllString(name, "_"), ".")
	if base = base[:min(len(base), maxFileName)]; base == "" {
		base = "_"
	}
	n := base
	for i := 2; used[n] || used[n+again]; i++ {
		n = fmt.Sprintf("%s-%d", base, i)
	}
	used[n], used[n+again] = true, true
	return n
}

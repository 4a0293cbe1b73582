package proof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/internal/testreport"
	"github.com/sandbox-agent/sandbox-agent/workorder"

	"github.com/google/renameio/v2"
)

// maxPrinted bounds the log from which a report is read: a larger one lacks its middle, and missing tests would count
// as deleted.
const maxPrinted = 16 << 20

type side struct {
	name   string // base or head
	commit string
	// missing means that the commit does not exist.
	missing bool
	// store is root's store with verified objects of the commit.
	store git.Repo
	room  Room             // nil if it runs in the caller's environment
	user  *proc.Credential // user of its commands
	place string           // directory of the side below the user's home
	tree  string           // checkout within place
	home  string           // HOME within place
	root  *os.Root         // handle on tree
	done  int              // setup commands whose results exist
	// bare means that setup fails over files of an earlier one, so that the side starts without them.
	bare bool
	// undo removes what the checks left in the checkout; nil if nothing of it is kept.
	undo func(context.Context) error
	// ready means that its files exist and setup has passed. setupFailed says how setup failed.
	ready       bool
	setupFailed string
	// servers means that setup left processes that checks may need.
	servers bool
	before  *proc.ProcessSet // processes that no sweep kills; nil while nothing of the side runs
	settled *proc.ProcessSet // the same, with processes of setup
	views   []View
	// baseTests: its checkout has base's test files.
	baseTests bool
}

func (r *sides) side(ctx context.Context, s *side) {
	if err := r.enter(ctx, s); err != nil {
		r.because(workorder.ReasonNoCleanRoom, "%s was not run: no clean environment for it: %v", s.name, err)
		return
	}
	if err := r.bring(ctx, s); err != nil {
		r.because(workorder.ReasonCheckout, "%s was not run: %v", s.name, err)
		return
	}
	if s.ready = r.setup(ctx, s, len(r.checks)); !s.ready {
		return
	}
	if s == r.base && r.KeepBase != nil {
		var err error
		if s.undo, err = r.restorer(ctx, s); err != nil {
			r.warn("what the checks on base leave is not kept for later tasks: %v", err)
		}
	}
	for i, c := range r.checks {
		r.check(ctx, s, c, len(r.checks)-1-i, "")
	}
	r.visit(ctx, s)
}

func (r *sides) bring(ctx context.Context, s *side) error {
	if err := r.checkout(ctx, s); err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	if r.Prepare != nil {
		if err := r.Prepare(ctx, s.tree, s.user); err != nil {
			r.warn("prepare the checkout of %s: %v", s.name, err)
		}
	}
	return nil
}

// outside translates a path of the side into a path outside its room.
func (s *side) outside(path string) string {
	if s.room == nil {
		return path
	}
	return s.room.Outside(path)
}

func setupName(i int) string { return fmt.Sprintf("setup-%d", i+1) }

// setup runs the setup commands; after is the number of commands after it. A command that cannot run twice in one work
// tree (mkdir) fails over the files of an earlier setup: then all commands run again without those.
func (r *sides) setup(ctx context.Context, s *side, after int) bool {
	n := len(r.reasons)
	if r.runSetup(ctx, s, after) {
		return true
	}
	if s.setupFailed == "" || s.bare || s.room == nil || !s.room.StartState().SetupRestored || ctx.Err() != nil {
		return false
	}
	r.say("%s: setup runs again in an empty work tree: %s", s.name, s.setupFailed)
	r.reasons, s.setupFailed, s.bare = slices.Delete(r.reasons, n, len(r.reasons)), "", true
	err := r.leave(ctx, s)
	if err == nil {
		err = r.enter(ctx, s)
	}
	if err != nil {
		r.because(workorder.ReasonNoCleanRoom, "%s was not run: no clean environment for it: %v", s.name, err)
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
		case o.Err != nil && r.Order.Found && (s.bare || s.room == nil || !s.room.StartState().SetupRestored):
			// It failed before the agent ran, too, and the checks ran nevertheless.
		case o.Err != nil:
			s.setupFailed = fmt.Sprintf("setup command %q exited with %d (%s)", line, o.ExitCode, r.logName(s, setupName(i)))
			r.because(workorder.ReasonSetup, "%s was not run: %s%s", s.name, s.setupFailed, r.withheld())
			return false
		}
	}
	s.settled = r.lookAround(s)
	s.servers = s.servers || s.settled.HasNew(s.before) || r.extraContainers(ctx) > 0
	return true
}

func (r *sides) withheld() string {
	for _, n := range r.Order.SecretNames {
		if r.Order.SecretUse(n) == workorder.SecretForSetup {
			return fmt.Sprintf("; it runs without the secret %s, which is for setup only, because code of the task's commits runs in it", n)
		}
	}
	return ""
}

func (r *sides) check(ctx context.Context, s *side, c *check, after int, suffix string) {
	if c.skip {
		return
	}
	mark, err := testreport.MarkFiles(s.root)
	if err != nil {
		r.warn("%s on %s: %v", c.Name, s.name, err)
	}
	on := s.name
	if s.baseTests {
		on = "head with base's tests"
	}
	r.say("%s on %s: running", c.Name, on)
	asked := testreport.WithReport(c.Run, s.manifest())
	o, err := r.command(ctx, s, asked.Line, c.file+suffix, after)
	if err != nil {
		switch {
		case s.baseTests:
			r.because(workorder.ReasonCheck, "%s was not run with base's tests on head's code: %v", c.Name, err)
		case suffix == "":
			r.because(workorder.ReasonCheck, "%s was not run on %s: %v", c.Name, s.name, err)
		default:
			r.warn("%s was not repeated on %s: %v", c.Name, s.name, err)
		}
		return
	}
	res := workorder.CheckRun{
		ExitCode: o.ExitCode, Passed: o.Err == nil, DurationMS: o.Duration.Milliseconds(), Log: r.logName(s, c.file+suffix),
	}
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
	r.say("%s on %s: %s in %s", c.Name, on, verdict, round(o.Duration))
}

// manifest returns the side's package.json; empty if it cannot be read.
func (s *side) manifest() []byte {
	const most = 1 << 20 // far more than any real one
	b, err := safeopen.Read(s.root, "package.json", nil, most)
	if err != nil {
		return nil
	}
	return b
}

// forPeople replaces a machine-readable report in the log, after it has been parsed, with output for people.
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
		out, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)))
		if err != nil {
			return err
		}
		defer func() { _ = out.Cleanup() }() // nothing, once it is in place
		if err := testreport.Readable(printed, in, out); err != nil {
			return err
		}
		return out.CloseAtomicallyReplace()
	}()
	if err != nil {
		r.warn("write %s for people: %v", log, err)
	}
}

func (r *sides) report(s *side, c *check, mark testreport.FileState, log string) *testreport.Report {
	f, err := os.Open(filepath.Join(r.OutDir, filepath.FromSlash(log)))
	if err != nil {
		r.warn("%s on %s: %v", c.Name, s.name, err)
		rep, _ := testreport.Read(s.root, mark, nil) // the warning covers everything that is missing
		return rep
	}
	defer f.Close()
	var rep *testreport.Report
	if fi, serr := f.Stat(); serr == nil && fi.Size() > maxPrinted {
		r.warn(
			"%s on %s printed more than %d MiB, too much to read a report from: let the command write a report file", c.Name, s.name, maxPrinted>>20,
		)
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

// command runs one command line and kills the processes that it left, except those of setup. The error means that it
// did not run or was stopped from outside. It may use half of the remaining time while others follow.
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
	o := r.Shell(
		cctx, CommandLine{Name: "proof " + s.name + " " + name, Run: line, Dir: s.tree, Env: r.env(s), User: s.user, Log: r.logName(s, name)},
	)
	if s.settled != nil {
		s.settled.KillOthers() // a server left by one command must not serve the tests of the next
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
		return o, fmt.Errorf("it could not be started: %w", o.Err)
	}
	return o, nil
}

// env returns the environment of a side's commands, with the checkout's paths in place of the agent's home and work tree.
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

// moved translates a path in the agent's work tree or home for a side.
func (r *notes) moved(path string, s *side) string {
	for _, m := range [][2]string{{r.Workspace, s.tree}, {r.Home, s.home}} {
		if rest, ok := strings.CutPrefix(path, m[0]); ok && m[0] != "" && (rest == "" || rest[0] == '/') {
			return m[1] + rest
		}
	}
	return path
}

func (r *sides) rest(ctx context.Context, s *side) {
	if s == nil || s.before == nil {
		return
	}
	if n := s.before.KillOthers(); n > 0 {
		r.warn("%d processes of the checks on %s could not be killed", n, s.name)
	}
	s.before, s.settled = nil, nil
	r.removeContainers(ctx, "after "+s.name)
}

// containersTime bounds removing containers, which takes part of a second for some ten.
const containersTime = 30 * time.Second

// removeContainers ensures that no container that the checks did not start runs next to them.
func (r *sides) removeContainers(ctx context.Context, when string) {
	if r.Containers == nil || ctx.Err() != nil && remaining(ctx) > 0 {
		return // stopped from outside: the box is about to be removed with all of them
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), containersTime)
	defer cancel()
	if err := r.Containers.Remove(ctx); err != nil {
		r.because(
			workorder.ReasonRemains,
			"containers other than the project's could not be removed %s, and may have changed the results of the checks: %v",
			when, err,
		)
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

func (r *sides) resume(ctx context.Context, s *side) bool {
	if !s.ready {
		return false
	}
	if err := r.enter(ctx, s); err != nil {
		r.warn("checks on %s cannot run again: no clean environment for them: %v", s.name, err)
		return false
	}
	if s.room != nil || s.tree == "" { // a new one, or base was known
		if err := r.bring(ctx, s); err != nil {
			r.warn("checks on %s cannot run again: %v", s.name, err)
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
		r.warn("checks on %s cannot run again: %s", s.name, why.Detail)
	}
	r.reasons = slices.Delete(r.reasons, n, len(r.reasons))
	return ok
}

var notInFileName = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// maxFileName bounds a check's part of a log name, in bytes: the file systems' limit is 255.
const maxFileName = 100

// again ends the log name of a repetition.
const again = "-again"

// fileName derives a file name from a check's name, different from those used.
func fileName(name string, used map[string]bool) string {
	base := strings.TrimLeft(notInFileName.ReplaceAllString(name, "_"), ".")
	if base = base[:min(len(base), maxFileName)]; base == "" {
		base = "_"
	}
	n := base
	for i := 2; used[n] || used[n+again] || used[n+withBaseTests]; i++ {
		n = fmt.Sprintf("%s-%d", base, i)
	}
	used[n], used[n+again], used[n+withBaseTests] = true, true, true
	return n
}

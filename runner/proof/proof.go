// Package proof runs the project's checks on the first and the last commit of a task, each in a clean checkout, and compares the tests.
//
// The files of a checkout come from objects whose ids were recomputed. Each side has a fresh room (RoomMaker), a separate home and no
// credential. Head runs first, because it decides. A check that differs, or fails on head, is repeated once to find flaky tests.
// This is no defence against code under test that lies about itself.
package proof

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/testreport"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// Limit bounds a whole proof: two to four times the maximum duration of one command.
	Limit = 40 * time.Minute
	// flagsReserve is reserved for reading the sources, at most a tenth of the total time: slow tests must not
	// hide a cheat. A change of 5,000 files is read in some 10 s.
	flagsReserve = 20 * time.Second
	// RemoveTime bounds the removal of the checkouts; removeHurry applies after a stop from outside.
	RemoveTime  = 20 * time.Second
	removeHurry = 500 * time.Millisecond
	// maxReason bounds the text of Proof.Reasons in bytes: it is for people.
	maxReason = 2000
	// exitTimeout is the exit code of a command that took longer than its limit, as with timeout(1).
	exitTimeout = 124
)

var (
	errSlow  = errors.New("it exceeded the time limit of a command")
	errShare = errors.New("the remaining time ran out")
)

// Config holds the inputs of a proof.
type Config struct {
	Order *workorder.Order
	// Mirror is root's copy of the remote without the task's refs. Objects also has head, with verified objects; zero
	// means Mirror.
	Mirror, Objects git.Repo
	// Dir is a directory of root that the user can read, for objects. It is created if missing.
	Dir string
	// Home is the user's home: checkouts are created below it, where the inner engine may bind-mount them.
	Home string
	// Workspace is the agent's work tree. It is not modified.
	Workspace string
	OutDir    string
	// User runs the commands; nil means the current user.
	User *proc.Credential
	// Env is the environment of validate commands. In its values, Home and Workspace are replaced by those of the checkout.
	Env []string
	// Emit takes events without Seq and Time.
	Emit   func(workorder.Event)
	Redact *redact.Set
	// BaseRuns holds earlier results of the checks on base; nil if there are none.
	BaseRuns *BaseRuns
	// KeepBase keeps new ones for later proofs, with the files of base's room. Nothing runs in it. Nil if nothing is kept.
	KeepBase func(ctx context.Context, known *BaseRuns) error
	// Took is how long the checks took in the work tree; zero if unknown.
	Took time.Duration
	// Rooms creates a room per side. Nil if both sides run in the caller's environment.
	Rooms RoomMaker
	// Containers controls containers that code of the repository started. Nil without an engine.
	Containers Containers
	// Prepare adds the files that setup expects to a new checkout, as the user; nil if it expects none.
	Prepare func(ctx context.Context, dir string, user *proc.Credential) error
	// Shell runs a command line as the user and logs its output.
	Shell func(ctx context.Context, c CommandLine) Outcome
	// Visit views the pages of a side's development server. Its views also count with an error. Nil without such a server.
	Visit func(ctx context.Context, s Site) ([]View, error)

	limit  time.Duration // per command; 0 means that of the order
	gitEnv []string      // extra environment of git in checkouts; tests use it to replace the machine's configuration
}

// Containers controls the containers that the project does not declare: they may bind-mount directories and change results.
type Containers interface {
	Extra(ctx context.Context) (int, error)
	Remove(ctx context.Context) error
}

// RoomMaker creates rooms that contain nothing of the agent or of the other side.
type RoomMaker interface {
	// Room creates a room for a commit, which repo has; bare requests one without files of an earlier setup.
	Room(ctx context.Context, repo git.Repo, commit string, bare bool) (Room, error)
}

// StartState describes a room before the checkout.
type StartState struct {
	Tree, Home    string // paths in the room of directories that the user owns
	Index         []byte // git's index of the files that the work tree has; nil if none
	Done          int    // number of setup commands, from the first on, that need not run
	SetupRestored bool   // files of an earlier setup are in the work tree
}

// Room is the environment of one side. Home and work tree have the agent's paths in it, because tools store them.
type Room interface {
	StartState() StartState
	// User returns the user of commands in the room.
	User() *proc.Credential
	// Outside translates a path of the room into a path outside of it.
	Outside(path string) string
	// Enter kills all processes of the agent and resets the inner engine. Call it before the side's first command.
	Enter(ctx context.Context) error
	// Missing lists the parts of the image that are unavailable in the room.
	Missing() []string
	// FreeResources returns the resources available to commands in the room.
	FreeResources() (FreeResources, error)
	// Remove stops everything in the room and removes it with all its files, so that it uses no more resources.
	Remove(ctx context.Context) error
}

// CommandLine is one command line of setup or validation in a checkout.
type CommandLine struct {
	Name string // for events
	Run  string
	Dir  string
	Env  []string // complete, including HOME
	User *proc.Credential
	Log  string // path of the complete output, relative to Config.OutDir
}

// Outcome reports how a command ended.
type Outcome struct {
	ExitCode int // negative if it could not be started
	Duration time.Duration
	Err      error  // nil after exit code 0
	Warning  string // reports an incomplete log
}

// Site is a side's checkout, in which a development server can be started.
type Site struct {
	Side string // base or head
	Dir  string
	User *proc.Credential
	Env  []string // complete
	Log  string   // path of the server's output, relative to Config.OutDir
}

// View is a browser's view of a page at one window width.
type View struct {
	Path  string
	Width int
	Seen  workorder.PageView
}

type run struct {
	*sides
	proof *workorder.Proof
}

type notes struct {
	Config
	reasons workorder.Reasons
}

// stores hold the objects of both commits.
type stores struct {
	*notes
	mirrored   bool // the sides' stores have everything from the mirror
	base, head *side
}

type sides struct {
	*stores
	checks []*check
	first  *FreeResources // resources that were free for the first side
	edited testreport.Edited
}

// Run runs the order's checks on both commits, given by full ids, and compares them. base is empty if the task started
// without a commit. The error is for a proof that could not be started. The proof is never nil. Run may return up to
// RemoveTime after ctx ends.
func Run(ctx context.Context, c Config, base, head string) (*workorder.Proof, error) {
	r := &run{
		sides: &sides{stores: &stores{notes: &notes{Config: c}}},
		proof: &workorder.Proof{
			Base: base, Head: head, Checks: []workorder.CheckProof{}, Pages: []workorder.PageProof{}, TestFindings: []workorder.TestFinding{},
		},
	}
	if !git.ValidSHA(head) || base != "" && !git.ValidSHA(base) {
		return r.proof, fmt.Errorf("prove the work: %q and %q must be full commit ids", base, head)
	}
	if r.Objects.Dir == "" {
		r.Objects = r.Mirror
	}
	r.limit = cmp.Or(r.limit, r.Order.CheckLimit())
	r.plan()
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, errShare)
	defer cancel()
	r.base, r.head = &side{name: "base", commit: base}, &side{name: "head", commit: head}
	stores, err := r.newStores()
	if err != nil {
		return r.proof, fmt.Errorf("prove the work: %w", err)
	}
	defer r.removeStores(stores)
	defer r.clear(ctx)
	work, done := r.reserve(ctx)
	defer done()
	if err := r.fill(work); err != nil {
		r.because(workorder.ReasonCheckout, "%v", err)
	} else {
		r.findEdited(work)
		r.both(work)
	}
	r.judge()
	return r.proof, nil
}

func (r *run) both(ctx context.Context) {
	switch {
	case len(r.checks) == 0 && r.Visit == nil:
		return
	case r.base.commit == r.head.commit:
		r.because(workorder.ReasonSameCommit, "base and head are the same commit, there is nothing to compare")
		return
	}
	r.removeContainers(ctx, "before the checks")
	switch left := remaining(ctx); {
	case r.base.commit == "":
		r.because(workorder.ReasonNoBase, "base was not run: the task started without a commit")
	case r.base.missing:
		r.because(workorder.ReasonNoBase, "base was not run: commit %.12s is neither on the remote nor in the work tree", r.base.commit)
	case r.know():
	case left < 2*r.Took:
		r.because(workorder.ReasonNoTime, "base was not run: the checks took %s, and %s are left", round(r.Took), round(max(0, left)))
	default:
		r.proveBase(ctx)
	}
	r.leaveOutEndless()
	if err := r.leave(ctx, r.base); err != nil {
		r.because(workorder.ReasonRemains, "head was not run: files of base could not be removed, and might keep it from passing: %v", err)
		return
	}
	switch {
	case len(r.checks) == 0 && r.Visit == nil: // none of them ends
		return
	case ctx.Err() != nil:
		r.because(workorder.ReasonCheck, "head was not run: %v", context.Cause(ctx))
		return
	}
	r.side(ctx, r.head)
	r.leaveOutUnfit()
	again := r.doubtful()
	r.repeat(ctx, r.head, again[1])
	r.runBaseTests(ctx, r.head, r.judgedByTests())
	err := r.leave(ctx, r.head)
	switch {
	case len(again[0]) == 0:
	case err != nil:
		r.warn("checks on base were not repeated: files of head could not be removed, and might keep them from passing: %v", err)
	case r.resume(ctx, r.base):
		r.repeat(ctx, r.base, again[0])
	}
}

// reserve returns ctx with a deadline that leaves time for the flags.
func (r *run) reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	left := remaining(ctx)
	return context.WithTimeoutCause(ctx, left-min(flagsReserve, left/10), errShare)
}

// remaining returns the time until the deadline, which every context here has.
func remaining(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return Limit
	}
	return time.Until(end)
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

func (r *notes) because(code workorder.ReasonCode, format string, args ...any) {
	r.reasons = r.reasons.And(code, format, args...)
}

func (r *notes) warn(format string, args ...any) {
	r.Emit(workorder.Event{Type: workorder.EventWarning, Text: r.shown("proof: "+fmt.Sprintf(format, args...), workorder.MaxEventText)})
}

// say reports a step. These are not validate events: a check that fails on base is not a failed validation.
func (r *notes) say(format string, args ...any) {
	r.Emit(workorder.Event{Type: workorder.EventOutput, Name: "proof", Text: r.shown(fmt.Sprintf(format, args...), workorder.MaxEventText)})
}

// shown returns a text without secrets and control characters, at most that many bytes.
func (r *notes) shown(s string, most int) string {
	const window = 16 // multiple of the kept size that is redacted: a secret may begin before the cut
	s = r.Redact.String(s[:min(len(s), window*most)])
	return text.Cut(text.Visible(s), most)
}

// clear removes the checkouts in any case.
func (r *run) clear(ctx context.Context) {
	limit := RemoveTime
	if ctx.Err() != nil && remaining(ctx) > 0 {
		limit = removeHurry
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for _, s := range []*side{r.head, r.base} {
		r.rest(ctx, s)
		if s.room != nil && limit == RemoveTime { // otherwise it is removed with the box
			if err := r.leave(ctx, s); err != nil {
				r.warn("files of %s could not be removed: %v", s.name, err)
			}
		}
		if s.root != nil {
			_ = s.root.Close()
		}
		if s.place == "" || s.room != nil {
			continue
		}
		if err := r.remove(ctx, s); err != nil {
			r.warn("the checkout %s could not be removed: %v", s.place, err)
		}
	}
}

// remove deletes a directory of the user as the user, who may have removed rights from its directories, then as root
// without following links, for files that containers created.
func (r *notes) remove(ctx context.Context, s *side) error {
	err := r.asUser(ctx, s, "/", nil, `chmod -R u+rwx -- "$1" 2>/dev/null; rm -rf -- "$1"`, s.place)
	if os.Geteuid() != 0 || r.User == nil || ctx.Err() != nil {
		return err
	}
	home, rerr := os.OpenRoot(r.Home)
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	defer home.Close()
	return home.RemoveAll(filepath.Base(s.place))
}

// asUser runs a small script as the user, with a minimal environment.
func (r *notes) asUser(ctx context.Context, s *side, dir string, out *string, script string, args ...string) error {
	b, err := proc.Output(ctx, proc.Spec{
		Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Dir: dir, User: s.user,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"},
	})
	if out != nil {
		*out = string(b)
	}
	return err
}

// check is one validate command and the results of its runs.
type check struct {
	workorder.Check
	file string // its name within log file names
	base runs
	head runs
	// baseTests is the run on head's code with base's test files.
	baseTests runs
	skip      bool // it cannot be run in a checkout
}

// runs holds the runs of one side, in order.
type runs struct {
	done    []workorder.CheckRun
	reports []*testreport.Report // nil if there was none
}

func (c *check) of(s *side) *runs {
	switch {
	case s.name == "base":
		return &c.base
	case s.baseTests:
		return &c.baseTests
	}
	return &c.head
}

// last returns the run that counts.
func (r *runs) last() *workorder.CheckRun {
	if len(r.done) == 0 {
		return nil
	}
	return &r.done[len(r.done)-1]
}

func (r *run) plan() {
	used := map[string]bool{}
	for i := range r.Order.Setup {
		used[setupName(i)] = true
	}
	used[devLog] = r.Visit != nil
	for _, v := range r.Order.Validate {
		c := &check{Check: v, file: fileName(r.Redact.String(v.Name), used)}
		if r.Rooms == nil && r.Workspace != "" && strings.Contains(v.Run, r.Workspace) {
			c.skip = true
			r.because(
				workorder.ReasonWorkspace,
				"%s was not run: its command names %s, the agent's work tree; use a relative path or $SANDBOX_AGENT_WORKSPACE", v.Name, r.Workspace,
			)
		}
		r.checks = append(r.checks, c)
	}
}

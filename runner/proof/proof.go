package proof

import (
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
	// Limit bounds a whole proof: two to four times the longest that one command may take.
	Limit = 40 * time.Minute
	// CommandTimeout bounds one command, as it bounds a validate command in the work tree (runner.ValidateTimeout).
	CommandTimeout = 10 * time.Minute
	// flagsReserve is kept for reading the sources, at most a tenth of all time: slow tests must not
	// keep a cheat from being seen. A change of 5,000 files is read in some 10 s.
	flagsReserve = 20 * time.Second
	// RemoveTime bounds removing the checkouts; removeHurry where the run was stopped from outside, and the
	// box is about to be thrown away with everything in it.
	RemoveTime  = 20 * time.Second
	removeHurry = 500 * time.Millisecond
	// maxReason bounds the text of Proof.Reasons in bytes: it is for a human.
	maxReason = 2000
	// exitTimeout is the exit code of a command that took longer than CommandTimeout, as timeout(1) has it.
	exitTimeout = 124
)

var (
	errSlow  = errors.New("it took longer than a command may")
	errShare = errors.New("the time that was left ran out")
)

// Config is what a proof needs.
type Config struct {
	Order *workorder.Order
	// Mirror is our copy of the remote, without what the task brought there: bare, written by nobody but us, and readable by the user.
	// Objects has head as well, by alternates into the agent's store; what it says is verified. The zero value is Mirror.
	Mirror, Objects git.Repo
	// Dir is a folder of ours that the user can read, for objects. It is made when missing.
	Dir string
	// Home is the user's home: checkouts are made below it, where the inner engine may bind them.
	Home string
	// Workspace is the agent's work tree. Nothing in it is touched.
	Workspace string
	// OutDir is the result's folder; logs go below it.
	OutDir string
	// User is whom commands run as; nil is the caller.
	User *proc.Credential
	// Env is the complete environment of validate commands. In its values Home and
	// Workspace are replaced by the checkout's own.
	Env []string
	// Emit takes events without Seq and Time.
	Emit   func(workorder.Event)
	Redact *redact.Set
	// Known are the checks on base before the task, by Before. Nil if they were not run.
	Known *Known
	// Ground makes the places that the sides run in. Nil if both run where the caller does.
	Ground Ground
	// Containers are those that code of the repository started. Nil without an engine.
	Containers Containers
	// Prepare puts into a new checkout what setup expects beside the repository's files, as the user. Nil if it expects nothing.
	Prepare func(ctx context.Context, dir string, user *proc.Credential) error
	// Shell runs a command line as the user, with its output in a log.
	Shell func(ctx context.Context, c Command) Outcome
	// Visit looks at the pages of a side's development server, in the checkout where setup has run, after its checks. Its views count
	// also with an error, which goes into the proof's Reasons. Nil without such a server.
	Visit func(ctx context.Context, s Site) ([]View, error)

	limit  time.Duration // of a command; 0: CommandTimeout
	gitEnv []string      // of git in checkouts; a test's stand-in for the machine's configuration
}

// Containers are the inner engine's, without those that the project declares. They outlive the processes that started them and
// may bind the user's folders: one of the agent's would stand beside the checks and change what they see.
type Containers interface {
	// Extra is how many there are.
	Extra(ctx context.Context) (int, error)
	// Remove removes all of them.
	Remove(ctx context.Context) error
}

// Ground makes places that hold nothing of the agent's, nor of the other side's.
type Ground interface {
	// Room makes a place for a commit, which repo has; bare is one without what an earlier setup left. The error says why there is none.
	Room(ctx context.Context, repo git.Repo, commit string, bare bool) (Room, error)
}

// Begins is what a room has before the checkout.
type Begins struct {
	Tree, Home string // paths in it, of folders of the user's
	Index      []byte // git's index of the files that the work tree has; nil if it has none
	Done       int    // how many setup commands, from the first on, need not run
	Over       bool   // an earlier setup's files are in the work tree
}

// Room is the place of one side. Home and work tree have the paths in it that they have for the agent: tools remember them.
type Room interface {
	Begins() Begins
	// User is whom commands run as in it.
	User() *proc.Credential
	// Outside is where a path of the room lies for us.
	Outside(path string) string
	// Enter ends whatever runs on the agent's side and makes the inner engine new, with the declared services. It comes before the first
	// command of the side.
	Enter(ctx context.Context) error
	// Lacks says what of the image cannot be had in the room.
	Lacks() []string
	// Free is what commands in the room can take.
	Free() (Free, error)
	// Leave ends what runs in the room and gives it up, with all its files: nothing of it is left that takes anything from others.
	Leave(ctx context.Context) error
}

// Command is one command line of setup or validation in a checkout.
type Command struct {
	Name string // for events
	Run  string
	Dir  string
	Env  []string // complete, HOME included
	User *proc.Credential
	Log  string // path of the full output, relative to Config.OutDir
}

// Outcome is how a command ended.
type Outcome struct {
	ExitCode int // negative: it could not be started
	Duration time.Duration
	Err      error  // nil after exit code 0
	Warning  string // tells of an incomplete log
}

// Site is a side's checkout, in which a development server can be started. The proof stops what it leaves running.
type Site struct {
	Side string // base or head
	Dir  string
	User *proc.Credential
	Env  []string // complete
	Log  string   // path of the server's output, relative to Config.OutDir
}

// View is what a browser saw of a page in a window of one width.
type View struct {
	Path  string
	Width int
	Seen  workorder.PageView
}

// run is one call of Run.
type run struct {
	*sides
	proof *workorder.Proof
}

// notes are what a run says, and to whom.
type notes struct {
	Config
	reasons workorder.Reasons
}

// stores hold the objects of both commits.
type stores struct {
	*notes
	mirrored   bool // the sides' stores have all that the mirror has
	readable   bool // they have both commits, and their trees are of a bearable size
	base, head *side
}

// sides run the checks in a checkout of each.
type sides struct {
	*stores
	checks []*check
	first  *Free // what was free for the side that ran first
}

// Run runs the order's checks on both commits, given by full ids, and compares them. An empty base is a task without one.
// The proof's Reason says what keeps a side from being run; the error is of a proof that could not be begun.
// The proof is never nil. It may come RemoveTime after the end of ctx.
func Run(ctx context.Context, c Config, base, head string) (*workorder.Proof, error) {
	r := &run{sides: &sides{stores: &stores{notes: &notes{Config: c}}}, proof: &workorder.Proof{Base: base, Head: head, Checks: []workorder.CheckProof{}, Pages: []workorder.PageProof{}, Flags: []workorder.Flag{}}}
	if !git.ValidSHA(head) || base != "" && !git.ValidSHA(base) {
		return r.proof, fmt.Errorf("prove the work: %q and %q have to be full commit ids", base, head)
	}
	if r.Objects.Dir == "" {
		r.Objects = r.Mirror
	}
	if r.limit == 0 {
		r.limit = CommandTimeout
	}
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
		r.both(work)
	}
	r.judge(ctx)
	return r.proof, nil
}

// both runs the sides and repeats what has to be.
func (r *run) both(ctx context.Context) {
	switch {
	case len(r.checks) == 0 && r.Visit == nil:
		return
	case r.base.commit == r.head.commit:
		r.because(workorder.ReasonSameCommit, "base and head are the same commit, there is nothing to compare")
		return
	}
	r.removeContainers(ctx, "before the checks")
	r.side(ctx, r.head)
	gone := r.leave(ctx, r.head)
	switch left := remaining(ctx); {
	case r.base.commit == "":
		r.because(workorder.ReasonNoBase, "base was not run: the task began without a commit")
	case r.base.missing:
		r.because(workorder.ReasonNoBase, "base was not run: there is no commit %.12s on the remote or in the work tree", r.base.commit)
	case r.know():
	case ctx.Err() != nil, left < r.head.took:
		r.because(workorder.ReasonNoTime, "base was not run: head took %s, and %s are left", round(r.head.took), round(max(0, left)))
	case gone != nil:
		r.because(workorder.ReasonRemains, "base was not run: what head left cannot be removed, and might keep it from passing: %v", gone)
	default:
		r.side(ctx, r.base)
	}
	again := r.doubtful()
	if r.base.root != nil || len(again[0]) > 0 && r.resume(ctx, r.base) {
		r.repeat(ctx, r.base, again[0])
	}
	if err := r.leave(ctx, r.base); err != nil {
		r.warn("what base left cannot be removed: %v", err)
	}
	if len(again[1]) > 0 && gone == nil && r.resume(ctx, r.head) {
		r.repeat(ctx, r.head, again[1])
	}
	r.rest(ctx, r.head)
}

// reserve is ctx without the time that flags need.
func (r *run) reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	left := remaining(ctx)
	return context.WithTimeoutCause(ctx, left-min(flagsReserve, left/10), errShare)
}

// remaining is the time to the deadline that every context here has.
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

// because adds to why a side is missing.
func (r *notes) because(code workorder.ReasonCode, format string, args ...any) {
	r.reasons = r.reasons.And(code, format, args...)
}

func (r *notes) warn(format string, args ...any) {
	r.Emit(workorder.Event{Type: workorder.EventWarning, Text: r.shown("proof: "+fmt.Sprintf(format, args...), workorder.MaxEventText)})
}

// say tells of a step. These are no validate events: a check that fails on base is no failure of the task's validation.
func (r *notes) say(format string, args ...any) {
	r.Emit(workorder.Event{Type: workorder.EventOutput, Name: "proof", Text: r.shown(fmt.Sprintf(format, args...), workorder.MaxEventText)})
}

// shown is a text for a human: without secrets and control characters, and not longer than max bytes.
func (r *notes) shown(s string, most int) string {
	const window = 16 // times what is kept is looked at: a secret may begin before the cut
	s = r.Redact.String(s[:min(len(s), window*most)])
	return text.Cut(text.Seen(s), most)
}

// clear removes the checkouts, whatever happened before.
func (r *run) clear(ctx context.Context) {
	limit := RemoveTime
	if ctx.Err() != nil && remaining(ctx) > 0 {
		limit = removeHurry
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for _, s := range []*side{r.head, r.base} {
		r.rest(ctx, s)
		if s.room != nil && limit == RemoveTime { // else it goes with the box
			if err := r.leave(ctx, s); err != nil {
				r.warn("what %s left cannot be removed: %v", s.name, err)
			}
		}
		if s.root != nil {
			_ = s.root.Close()
		}
		if s.place == "" || s.room != nil {
			continue
		}
		if err := r.remove(ctx, s); err != nil {
			r.warn("the checkout %s cannot be removed: %v", s.place, err)
		}
	}
}

// remove deletes a folder of the user's. As the user, who may have taken rights from its folders (as Go's module cache does);
// what others made there, in containers, is left to us, who reach it below the home without following links.
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

// asUser runs a small script as the user, without an environment of anybody's.
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

// check is one validate command and what its runs gave.
type check struct {
	workorder.Command
	file string // its name in names of logs
	base runs
	head runs
	skip bool // it cannot be run in a checkout
}

// runs are those of one side, in order.
type runs struct {
	done    []workorder.CheckRun
	reports []*testreport.Report // nil where there was none
}

func (c *check) of(s *side) *runs {
	if s.name == "base" {
		return &c.base
	}
	return &c.head
}

// last is the run that counts.
func (r *runs) last() *workorder.CheckRun {
	if len(r.done) == 0 {
		return nil
	}
	return &r.done[len(r.done)-1]
}

// plan takes the checks from the order.
func (r *run) plan() {
	used := map[string]bool{}
	for i := range r.Order.Setup {
		used[setupName(i)] = true
	}
	used[devLog] = r.Visit != nil
	for _, v := range r.Order.Validate {
		c := &check{Command: v, file: fileName(r.Redact.String(v.Name), used)}
		if r.Ground == nil && r.Workspace != "" && strings.Contains(v.Run, r.Workspace) {
			c.skip = true
			r.because(workorder.ReasonWorkspace, "%s was not run: its command names %s, where the agent worked; use a relative path or $SANDBOX_AGENT_WORKSPACE", v.Name, r.Workspace)
		}
		r.checks = append(r.checks, c)
	}
}

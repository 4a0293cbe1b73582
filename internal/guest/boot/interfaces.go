package boot

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Engine is the inner Docker engine. Listen comes first; Start may be called by
// more than one and starts once.
type Engine interface {
	// Listen makes the socket exist. Clients that connect wait until the engine runs.
	Listen(ctx context.Context) error
	// Start starts the engine and returns when it answers.
	Start(ctx context.Context) error
	// StartOnDemand waits for the first client and starts the engine then.
	StartOnDemand(ctx context.Context) error
	// Mark notes the containers that are there when code of the repository runs for the first time: those the project declares.
	// It may be called again.
	Mark(ctx context.Context) error
	// Describe fills in what the result says about the engine.
	Describe(*workorder.Host)
	// Stop ends all containers and the engine, within ctx. It is safe to call at any time.
	Stop(ctx context.Context)
}

// Network is the network policy of the box and the gateway that passes it.
type Network interface {
	// Up puts the policy in force and opens the gateway. It comes before everything
	// that is not trusted; an error ends the run.
	Up(ctx context.Context) error
	// Seal holds the inner engine itself to the policy, which until then may fetch
	// the images of declared services. It comes before untrusted code.
	Seal(ctx context.Context) error
	// Report puts what was reached for and what was refused into the result.
	Report(*workorder.Result)
	// Close ends the gateway and the ways out; the rules of the kernel stay in force.
	Close()
}

// Services are the containers that the task needs.
type Services interface {
	// Up creates them all and returns when all are ready; the error names every one that is not.
	Up(ctx context.Context) error
	// Supabase brings up the Supabase stack of the workspace and returns its variables.
	Supabase(ctx context.Context) (map[string]string, error)
	// Ends says how each service was last seen.
	Ends() []workorder.ServiceEnd
	// Unwatch stops looking after them: from here on their end is no failure.
	Unwatch()
}

// Repository brings the repository in and the work out.
type Repository interface {
	// Clone takes the task's lease on the remote, which is renewed until Land or
	// Release, and makes the work tree; for a continued task, as it was left.
	// An error may tell by EndedByer what it means for the run.
	Clone(ctx context.Context) (Cloned, error)
	// Baseline notes what setup left in the work tree: it is not the agent's work.
	Baseline(ctx context.Context) error
	// Save begins to save the work tree and its commits from time to time.
	Save()
	// Hurry says that the box is being stopped, and what is left for keeping as files what could not be pushed.
	Hurry(files time.Duration)
	// Flush saves at once, beside whatever goes on.
	Flush()
	// Settle ends Save: it waits for what is under way, as long as ctx allows.
	// Commit may only be called after it.
	Settle(ctx context.Context)
	// Push pushes what is committed at once, and new commits from time to time,
	// beside whatever goes on. Without commitsOnly it goes on to save the work tree.
	Push(ctx context.Context, commitsOnly bool)
	// Lost is closed when another box has the task's lease.
	Lost() <-chan struct{}
	// Commit commits what is uncommitted, as far as it can; the error says what is
	// left. Nothing to commit is no error.
	Commit(ctx context.Context, message string) error
	// Archive keeps what Commit left, or the whole work tree, as a file of the
	// output and returns its path there. It has time of its own.
	Archive(ctx context.Context, whole bool) (path string, err error)
	// Land pushes the branch and reports. It may be called again. end says how the
	// attempt is to be recorded on the remote if the push succeeds.
	Land(ctx context.Context, baseSHA string, end End) Landing
	// Surface lists what a branch changes of what runs on a reviewer's or a CI's machine.
	Surface(ctx context.Context, base, head string) ([]workorder.SurfaceFinding, error)
	// Evidence brings files of the output to the remote, on a ref of their own, and returns the commit that
	// holds them at their paths; left are those that it does not hold. It is called after Land.
	Evidence(ctx context.Context, paths []string) (sha string, left []string, err error)
	// Result brings result, events and logs of the output to the remote, once the result is written; left are files that
	// did not fit. It does nothing where Clone did not come so far, or the lease is lost.
	Result(ctx context.Context) (left []string, err error)
	// Changes are the files of the newest commits of head that base does not have, by commit.
	Changes(ctx context.Context, base, head string) (map[string][]workorder.FileChange, error)
	// Release records on the remote how the attempt ended, where Land has not, and
	// gives the lease back. It does nothing where Clone did not come so far.
	Release(ctx context.Context, end workorder.Attempt) error
	// Close ends what Clone started for the length of the run.
	Close()
}

// Prover finds out what the task's commits prove.
type Prover interface {
	// Remember keeps what the image has where code of the task can write. It comes before any such code.
	Remember(ctx context.Context) error
	// Prove runs the checks on both commits, in clean checkouts. It ends with ctx; the proof is never nil. The evidence are files
	// that it left in the output.
	Prove(ctx context.Context, base, head string) (*workorder.Proof, []workorder.Evidence, error)
	// Checks is Prove without what is only shown: nobody looks at pages.
	Checks(ctx context.Context, base, head string) (*workorder.Proof, error)
}

// Forge is where the pull request of the branch is opened.
type Forge interface {
	// Open opens or updates it. why is not empty when it did not try, and says what keeps it from that.
	// An error may come with a pull request that is open all the same.
	Open(ctx context.Context, r *workorder.Result) (pr *workorder.PR, why string, warnings []string, err error)
}

// End is how an attempt is recorded that has these commits.
type End func(commits []workorder.Commit, head string) workorder.Attempt

// EndedByer is implemented by errors that know what they mean for the run.
type EndedByer interface{ EndedBy() workorder.EndedBy }

// Cloned is what a run begins with.
type Cloned struct {
	Base, BaseSHA string
	// Head is the branch's commit; BaseSHA for a new task.
	Head string
	// Pushed: the remote's branch has Head. Commits that came by a bundle or a
	// checkpoint are not there before the first save.
	Pushed bool
	// Attempt counts the boxes of the task, this one included.
	Attempt int
	// State is what the remote knows of the task; nil for a task without one.
	State *workorder.State
	// Restored is nil for a new task.
	Restored *workorder.Restored
	// Commits are those of earlier attempts, newest first.
	Commits []workorder.Commit
	// Changed are the paths that were restored and are in no commit.
	Changed []string
	// Unpacked: files that an earlier attempt could not commit were laid over the work tree.
	Unpacked bool
	// Elsewhere are refs of the remote with work of earlier attempts that is not on the branch.
	Elsewhere []string
}

// Landing is what a landing did.
type Landing struct {
	Head    string
	Commits []workorder.Commit
	Pushed  bool
	Bundle  string // file that holds the work because it could not be pushed
	Archive string // file of the output that holds what could not be committed
	Lost    bool   // something of the work could be kept nowhere
	Large   bool   // what is left are files that are too large to be kept
	// Checkpoint is still needed on the remote: it holds what the branch does not.
	Checkpoint *workorder.Checkpoint
	Warnings   []string
	Err        error
}

// Task runs the code of the repository and the agent as user sandbox.
type Task interface {
	// Shell runs one command of the project; name is used for its log.
	Shell(ctx context.Context, name, command string) (exitCode int, tail string, err error)
	// Continue tells what earlier attempts left; it is called before Agent, for a
	// continued task only.
	Continue(c Cloned)
	// Agent runs the harness to its end.
	Agent(ctx context.Context) AgentEnd
	// Repair runs the harness once more, after its work failed checks. round counts from 1; used is what the attempt
	// has used so far. The end's usage is that of the round alone.
	Repair(ctx context.Context, round int, checks []workorder.Validation, used workorder.Usage) AgentEnd
	// Plan is the plan that the agent made, and the file of the output that holds it. It is called after Agent, in
	// ModePlan only.
	Plan() (text, path string, err error)
	// Validate runs every validate command.
	Validate(ctx context.Context) []workorder.Validation
	// Verdict judges the run from the agent's end, the validation and the number
	// of commits. cause is why the run was cut short, or nil.
	Verdict(checks []workorder.Validation, commits int, cause error) workorder.Ending
	// Setenv adds a variable for all later commands and the agent.
	Setenv(name, value string)
}

// AgentEnd is how the agent ended, before the verdict on the run.
type AgentEnd struct {
	Agent    workorder.Agent
	Usage    workorder.Usage
	Status   workorder.Status // success: it did its part
	Reasons  workorder.Reasons
	ResumeAt *time.Time // when a parked task can go on
	Evidence []workorder.Evidence
	Warnings []string
}

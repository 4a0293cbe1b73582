package boot

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Engine is the inner Docker engine. Call Listen first; Start may be called several times.
type Engine interface {
	// Listen creates the socket. Clients that connect wait until the engine runs.
	Listen(ctx context.Context) error
	// Start starts the engine and returns when it accepts requests.
	Start(ctx context.Context) error
	// StartOnDemand waits for the first client and then starts the engine.
	StartOnDemand(ctx context.Context) error
	// Mark records the containers that the project declares, before code of the repository first runs.
	Mark(ctx context.Context) error
	// Describe writes the engine's details into the result.
	Describe(*workorder.Platform)
	// Stop ends all containers and the engine, within ctx. It is safe to call at any time.
	Stop(ctx context.Context)
}

// StandaloneServer serves a standalone box.
type StandaloneServer interface {
	// Restarted reports whether the box was prepared before and is being restarted.
	Restarted() bool
	// Serve marks the box as ready, and serves clients until ctx ends or the box is released; over is the reason.
	Serve(ctx context.Context) (over, err error)
}

// PolicyEnforcer is the network policy of the box and its gateways.
type PolicyEnforcer interface {
	// Up applies the policy and opens the gateway, before any untrusted code; an error ends the run.
	Up(ctx context.Context) error
	// Seal applies the policy to the inner engine, too, after it has fetched the images of declared services. Before Up, it makes Up do so.
	Seal(ctx context.Context) error
	// Report writes the contacted and the refused hosts into the result.
	Report(*workorder.Result)
	// Close ends the gateway and the proxies; the kernel's rules stay in force.
	Close()
}

// Packages installs packages of the distribution.
type Packages interface {
	Install(ctx context.Context, names []string) error
}

// Tools installs compilers, runtimes and package managers in the versions that the project chooses.
type Tools interface {
	// Install installs the tools and returns the variables that commands need. The error names each unavailable tool;
	// the variables are for the others.
	Install(ctx context.Context, asked map[string]string) (env map[string]string, err error)
}

// Services controls the containers that the task needs.
type Services interface {
	// Up creates all services and returns when each is ready or has failed. down names the failed ones: all if the
	// project declared them, otherwise those that were dropped. If err is non-nil, no service runs.
	Up(ctx context.Context) (down, err error)
	// Reset resets the engine and the services to their state after Up.
	Reset(ctx context.Context) error
	// Supabase starts the Supabase stack of the workspace and returns its variables.
	Supabase(ctx context.Context) (map[string]string, error)
	// Ends returns the last known state of each service.
	Ends() []workorder.ServiceEnd
	// Unwatch stops watching them: from then on their end is not a failure.
	Unwatch()
}

// Repository clones the repository and lands the work. Each phase has its part of it.
type Repository interface {
	Checkout
	Saving
	Landing
	Lease
	Publishing
}

// Checkout makes the work tree.
type Checkout interface {
	// Clone takes the task's lease and makes the work tree; for a continued task, as it was left. The lease is renewed
	// until Land or Release. An error may implement EndedByer; a *claim.DoneError means that the order asks for an
	// earlier result.
	Clone(ctx context.Context) (rootgit.CloneResult, error)
	// Recheckout restores a work tree that has lost its files to its first commit and restored changes.
	Recheckout(ctx context.Context) error
	// RecordSetupFiles records the files that setup left in the work tree, which are not the agent's work. It returns tracked
	// files whose changes the agent's git does not show.
	RecordSetupFiles(ctx context.Context) (hidden []string, err error)
	// Close ends the background work that Clone started.
	Close()
}

// Saving pushes the work while the agent and the checks run.
type Saving interface {
	// Save starts saving the work tree and its commits periodically.
	Save()
	// Push pushes the current commits and then new ones in the background. Unless commitsOnly is set, snapshots continue.
	Push(ctx context.Context, commitsOnly bool)
	// SaveNow saves at once, concurrently with other work.
	SaveNow()
	// StopSaving ends Save and waits, until ctx ends, for a save under way. Call it before Commit.
	StopSaving(ctx context.Context)
	// AnnounceStop tells that the box is being stopped, and the time left for keeping unpushed work as files.
	AnnounceStop(files time.Duration)
}

// Landing brings the work to the remote, or keeps it as files.
type Landing interface {
	// Commit commits all changes it can. The error lists the other paths. Without changes it returns nil.
	Commit(ctx context.Context) error
	// Archive saves the paths that Commit left, or the whole work tree, as a file of the output, within its own time limit.
	Archive(ctx context.Context, whole bool) (path string, err error)
	// Land pushes the branch and reports. It may be called again. end returns how the remote records the attempt.
	Land(ctx context.Context, baseSHA string, end land.RecordAttempt) land.Result
}

// Lease is the task's lease that Clone took.
type Lease interface {
	// Lost is closed when another box holds it.
	Lost() <-chan struct{}
	// Release records on the remote how the attempt ended, unless Land has, and returns the lease that Clone took.
	Release(ctx context.Context, end workorder.Attempt) error
}

// Publishing shows the landed work to reviewers.
type Publishing interface {
	// Changes lists, by commit, the files of head's newest commits that base does not have.
	Changes(ctx context.Context, base, head string) (map[string][]workorder.FileChange, error)
	// Surface lists a branch's changes to files that run on a reviewer's or a CI's machine.
	Surface(ctx context.Context, base, head string) ([]workorder.SurfaceFinding, error)
	// Evidence pushes files of the output to a separate ref and returns the commit with them; left lists the omitted
	// ones. Call it after Land.
	Evidence(ctx context.Context, paths []string) (sha string, left []string, err error)
	// Result pushes result, events and logs of the output to the remote once the result is written; left lists the
	// files that did not fit. It does nothing without the lease.
	Result(ctx context.Context) (left []string, err error)
}

// Prover runs the checks that make the proof.
type Prover interface {
	// RecordBaseline copies the image's contents of paths that the task's code can write. Call it before any such code.
	RecordBaseline(ctx context.Context) error
	// Endless returns the detected checks that did not end on base in an earlier proof.
	Endless(base string) []workorder.LeftOut
	// Prove runs the checks on both commits in clean checkouts. It ends with ctx; the proof is never nil.
	// evidence lists the files that it left in the output.
	Prove(ctx context.Context, base, head string) (*workorder.Proof, []workorder.Evidence, error)
	// Checks is Prove without pages and other evidence.
	Checks(ctx context.Context, base, head string) (*workorder.Proof, error)
}

// SetupCache caches the files that setup left, for later boxes.
type SetupCache interface {
	// Skippable returns how many of setup's first commands need not run, because their results exist.
	Skippable(ctx context.Context) int
	// Restored reports whether files of an earlier setup are in the work tree or the home.
	Restored() bool
	// Clear removes those files, also from the home and the work tree; then this box caches nothing. After an error the
	// work tree is unusable.
	Clear() error
	// WouldSave reports whether Save would cache anything.
	WouldSave() bool
	// Save caches the files that setup left, on a task's first commit and before any code of the task. whole means that
	// setup changed nothing outside of these directories. why is the reason if nothing is cached. After an error the
	// work tree is unusable.
	Save(ctx context.Context, whole bool) (why, err error)
	// Close releases this box's share. It is called last.
	Close() error
}

// Forge opens the branch's pull request.
type Forge interface {
	// Open opens or updates it. why is the reason if it did not try. An error may come with an open pull request.
	Open(ctx context.Context, r *workorder.Result) (pr *workorder.PR, why string, warnings []string, err error)
}

// EndedByer is implemented by errors that know which actor ended the run.
type EndedByer interface{ EndedBy() workorder.EndedBy }

// Task runs the code of the repository and the agent as user sandbox.
type Task interface {
	// Shell runs one command of the project; name selects its log.
	Shell(ctx context.Context, name, command string) (exitCode int, tail string, err error)
	// Continue passes on the state that earlier attempts left. Call it before Agent, for a continued task only.
	Continue(c rootgit.CloneResult)
	// Agent runs the harness until it ends.
	Agent(ctx context.Context) AgentEnd
	// Repair runs the harness again after checks failed. round counts from 1; used is the attempt's usage so far. The
	// end has the usage of this round alone.
	Repair(ctx context.Context, round int, checks []workorder.Validation, used workorder.Usage) AgentEnd
	// Plan returns the agent's plan and its file in the output. Call it after Agent, in ModePlan only.
	Plan() (text, path string, err error)
	// Validate runs every validate command.
	Validate(ctx context.Context) []workorder.Validation
	// Verdict derives the run's ending. cause is why the run was cut short, or nil.
	Verdict(checks []workorder.Validation, commits int, cause error) workorder.Ending
	// Note adds a note about the sandbox to the agent's prompt.
	Note(text string)
	// Setenv adds a variable for all later commands and the agent.
	Setenv(name, value string)
}

// AgentEnd is how the agent ended, before the verdict on the run.
type AgentEnd struct {
	Agent    workorder.Agent
	Usage    workorder.Usage
	Status   workorder.Status // success if it finished
	Reasons  workorder.Reasons
	ResumeAt *time.Time // when a parked task can continue
	Evidence []workorder.Evidence
	Warnings []string
}

package workorder

import "time"

// Paths in the box's file system that host and guest share.
const (
	// OutDir holds the box's output; the host copies it when the container has stopped.
	OutDir = "/var/lib/sandbox-agent/out"
	// ImageInbox receives the image archives that the guest requested: the archive as <name>.tar, then an empty
	// <name>.tar.done (or <name>.tar.failed with the reason as its content).
	ImageInbox = "/var/lib/sandbox-agent/inbox"
	// BundleIn is the bundle of an earlier attempt with commits that could not be pushed (see Order.Bundle). The host writes it.
	BundleIn = "/var/lib/sandbox-agent/work.bundle"
	// ArchiveIn has the uncommitted files of an earlier attempt, in the format of ArchiveFile (see Order.Archive). The host writes it.
	ArchiveIn    = "/var/lib/sandbox-agent/uncommitted.tar.gz"
	CacheDir     = "/var/lib/sandbox-agent/cache" // the mount point of the layer cache volume
	DataRoot     = "/var/lib/docker"              // the inner engine's data root, on a volume of its own
	DockerSocket = "/var/run/docker.sock"         // the guard's socket: all of the box reaches Docker there
	// Workspace is the clone. Its path is fixed because agents key their sessions by it.
	Workspace = "/workspace"

	ResultFile     = "result.json"
	EventsFile     = "events.jsonl"
	OrderFile      = "workorder.json"
	ReportHTML     = "report.html" // written by the host, next to the result
	ReportMarkdown = "report.md"
	LogsDir        = "logs"
	// ModelCallsFile has the calls of the model gateway, one JSON document per line, without content and keys.
	ModelCallsFile = LogsDir + "/gateway.jsonl"
	EvidenceDir    = "evidence"
	BundleFile     = "work.bundle"                       // written when the branch could not be pushed
	ArchiveFile    = EvidenceDir + "/uncommitted.tar.gz" // written when git could not commit the working tree
	SandboxUser    = "sandbox"
	SandboxHome    = "/home/sandbox"
	EntrypointIn   = "/usr/local/bin/entrypoint"
)

// Labels of everything that the CLI creates on the engine.
const (
	LabelTask    = "sandbox-agent.task"
	LabelOwner   = "sandbox-agent.owner"
	LabelProject = "sandbox-agent.project"
	LabelAttempt = "sandbox-agent.attempt"
	// LabelStandby marks a box that was started before its order. Its value is the hash of everything that an order cannot change.
	LabelStandby = "sandbox-agent.standby"
	// LabelStandbyOwner has the process that keeps a standby, as JSON.
	LabelStandbyOwner = "sandbox-agent.standby-owner"
)

// The shutdown budget. The outer engine sends SIGTERM and, StopGrace later, SIGKILL. Within it the guest stops the
// agent, saves the work, writes the result, and only then stops containers. TestShutdownBudget checks the sum.
const (
	// StopGrace is the default of `docker stop`, and the shortest grace in which a landing is guaranteed.
	StopGrace    = 10 * time.Second
	AgentGrace   = 2 * time.Second        // the agent's time between the stop request and SIGKILL
	LandGrace    = 4 * time.Second        // bounds commit and push
	BundleGrace  = time.Second            // bounds writing the bundle when the push failed
	ReleaseGrace = time.Second            // bounds releasing the task lease, after the result is safe
	BootReserve  = 500 * time.Millisecond // boot's time to write the result before PID 1 considers it hung
	RescueGrace  = 2 * time.Second        // the time for rescue when boot hangs
	EngineGrace  = 1 * time.Second        // bounds stopping the inner engine, after the result is safe
	ExitReserve  = 500 * time.Millisecond // the time for PID 1 to notice, reap and exit

	// LongStop is the grace in place of StopGrace if LongStopSignal precedes SIGTERM. The CLI sends it, and so does the engine, as
	// configured for a box. A box cannot see how long an engine will wait, so without the signal it assumes StopGrace.
	LongStop       = StopGrace + 20*time.Second
	LongStopSignal = "SIGUSR1"

	// LandLimit bounds a landing that no SIGKILL follows. A large push over a slow line takes minutes; a longer one is stuck.
	LandLimit = 5 * time.Minute
	// AfterLimit bounds the rest of such an attempt on a forge that hangs: removal of the proof's checkouts, evidence,
	// answers and pull request. It is the sum of their own limits, rounded up (TestLongest of cmd/entrypoint).
	AfterLimit = 10 * time.Minute
)

// Shutdown divides the time between SIGTERM and SIGKILL.
type Shutdown struct {
	Land   time.Duration // commit and push
	Bundle time.Duration // save commits and files that could not be pushed
	Boot   time.Duration // from SIGTERM to the result: without one, boot is then considered hung
	Rescue time.Duration // from SIGTERM to the result, if boot died before
}

// ShutdownIn divides grace, at least StopGrace. Three quarters of the time beyond it are for pushing, a quarter for the files.
func ShutdownIn(grace time.Duration) Shutdown {
	more := max(0, grace-StopGrace)
	s := Shutdown{Land: LandGrace + more*3/4, Bundle: BundleGrace + more/4}
	s.Boot = AgentGrace + s.Land + s.Bundle + BootReserve
	s.Rescue = s.Boot + RescueGrace - BundleGrace
	return s
}

// BranchRef returns the full name of a branch, as in push events.
func BranchRef(branch string) string { return "refs/heads/" + branch }

// OrderDeadline bounds PID 1's wait for the order on standard input. The CLI writes it as soon as the container runs; a
// longer silence means that the CLI died.
const OrderDeadline = 30 * time.Second

// MaxPark is the latest credible end of a provider's limit from now: the longest window of providers is a week.
const MaxPark = 8 * 24 * time.Hour

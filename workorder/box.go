package workorder

import "time"

// Where host and guest meet in the box's file system.
const (
	// OutDir holds all that leaves the box by copying; the host copies it out
	// when the container has stopped.
	OutDir = "/var/lib/sandbox-agent/out"
	// ImageInbox is where the host puts image archives the guest asked for: the
	// archive as <name>.tar, and when that is complete an empty <name>.tar.done
	// (or <name>.tar.failed with the reason as its content).
	ImageInbox = "/var/lib/sandbox-agent/inbox"
	// BundleIn is where the host puts the bundle of an earlier attempt, whose commits
	// could not be pushed (see Order.Bundle).
	BundleIn = "/var/lib/sandbox-agent/work.bundle"
	// ArchiveIn is where the host puts the files of an earlier attempt that git could
	// not take (see Order.Archive), as they lie in its ArchiveFile.
	ArchiveIn = "/var/lib/sandbox-agent/uncommitted.tar.gz"
	// CacheDir is where the layer cache volume is mounted.
	CacheDir = "/var/lib/sandbox-agent/cache"
	// DataRoot is the inner engine's data root, a volume of its own.
	DataRoot = "/var/lib/docker"
	// DockerSocket is where everybody in the box finds Docker: the guard.
	DockerSocket = "/var/run/docker.sock"
	// Workspace is the clone, at a fixed path because agents key their
	// sessions by it.
	Workspace = "/workspace"

	ResultFile     = "result.json"
	EventsFile     = "events.jsonl"
	OrderFile      = "workorder.json"
	ReportHTML     = "report.html" // written by the host, beside the result
	ReportMarkdown = "report.md"
	LogsDir        = "logs"
	EvidenceDir    = "evidence"
	BundleFile     = "work.bundle"                       // written when the branch could not be pushed
	ArchiveFile    = EvidenceDir + "/uncommitted.tar.gz" // written when git could not take the work tree
	SandboxUser    = "sandbox"
	SandboxHome    = "/home/sandbox"
	EntrypointIn   = "/usr/local/bin/entrypoint"
)

// Labels of everything the CLI makes on the engine.
const (
	LabelTask    = "sandbox-agent.task"
	LabelOwner   = "sandbox-agent.owner"
	LabelProject = "sandbox-agent.project"
	LabelAttempt = "sandbox-agent.attempt"
)

// The shutdown budget. The outer engine sends SIGTERM and, StopGrace later,
// SIGKILL. Within it the guest stops the agent, saves the work, writes the
// result and only then thinks of containers. TestShutdownBudget adds it up.
const (
	// StopGrace is what `docker stop` grants when the user says nothing, and the
	// smallest grace a run is guaranteed to land in.
	StopGrace = 10 * time.Second
	// AgentGrace is what the agent has between the request to stop and SIGKILL.
	AgentGrace = 2 * time.Second
	// LandGrace bounds commit and push.
	LandGrace = 4 * time.Second
	// BundleGrace bounds keeping the commits as a file when they could not be pushed.
	BundleGrace = time.Second
	// ReleaseGrace bounds giving the task's lease back, after the result is safe.
	ReleaseGrace = time.Second
	// BootReserve is for boot to write the result, before PID 1 takes it for hung.
	BootReserve = 500 * time.Millisecond
	// RescueGrace is what is left for rescue when boot hangs.
	RescueGrace = 2 * time.Second
	// EngineGrace bounds the inner engine's end, after the result is safe.
	EngineGrace = 1 * time.Second
	// ExitReserve is left for PID 1 to notice, reap and exit.
	ExitReserve = 500 * time.Millisecond

	// LongStop is what whoever announces it by LongStopSignal, before SIGTERM, grants in place of StopGrace: the CLI does, and the engine
	// of its own accord (its default for a box). A box cannot see how long an engine will wait, so that without a word it counts on StopGrace.
	LongStop       = StopGrace + 20*time.Second
	LongStopSignal = "SIGUSR1"

	// LandLimit bounds a landing that nobody waits for with a SIGKILL. A large
	// push over a slow line takes minutes; longer means that it is stuck.
	LandLimit = 5 * time.Minute
	// AfterLimit bounds what follows a landing that nobody waits for: removing the proof's checkouts before it, and the evidence, the answers
	// and the pull request on a forge that hangs. It is the sum of their own bounds, rounded up (TestLongest of cmd/entrypoint).
	AfterLimit = 10 * time.Minute
)

// Shutdown is how the time between SIGTERM and SIGKILL is divided.
type Shutdown struct {
	Land   time.Duration // commit and push
	Bundle time.Duration // keeping as files what could not be pushed
	Boot   time.Duration // from SIGTERM to the result: a boot that has none then is taken for hung
	Rescue time.Duration // from SIGTERM to the result, where boot had died before
}

// ShutdownIn divides grace; less than StopGrace counts as that. Three quarters of the time beyond it go to pushing, a quarter to the files.
func ShutdownIn(grace time.Duration) Shutdown {
	more := max(0, grace-StopGrace)
	s := Shutdown{Land: LandGrace + more*3/4, Bundle: BundleGrace + more/4}
	s.Boot = AgentGrace + s.Land + s.Bundle + BootReserve
	s.Rescue = s.Boot + RescueGrace - BundleGrace
	return s
}

// BranchRef is the full name of a branch, as push events carry it.
func BranchRef(branch string) string { return "refs/heads/" + branch }

// OrderDeadline bounds PID 1's wait for the order on standard input: the CLI
// writes it as soon as the container runs, so a longer silence means it died.
const OrderDeadline = 30 * time.Second

// MaxPark bounds how far in the future a provider's limit can end to be believed: the longest window of providers is a week.
const MaxPark = 8 * 24 * time.Hour

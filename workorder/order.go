package workorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Order is the work order: everything that the guest needs for the task except secrets. Those are part of the Envelope
// and are never written to disk.
type Order struct {
	BoxSpec

	Version int    `json:"version"`
	TaskID  string `json:"task_id"`
	Mode    Mode   `json:"mode"`
	// AttemptID identifies the attempt: 16 hex digits, new for every box. Together with the box's incarnation it is the
	// holder of the task's lease on the remote.
	AttemptID string `json:"attempt_id,omitempty"`
	// IfExists says what the box does if the task exists on the remote; "" means IfExistsRefuse.
	IfExists IfExists `json:"if_exists,omitempty"`
	// Ended lists attempts that the host knows to have ended, because their container exited or is missing. The box
	// does not wait for their leases.
	Ended   []string `json:"ended,omitempty"`
	Project string   `json:"project"`
	// Bundle reports that BundleIn has commits of an earlier attempt that were never pushed. They come before the remote's.
	Bundle bool `json:"bundle,omitempty"`
	// Archive reports that ArchiveIn has files of an earlier attempt that git could not commit. They are unpacked over the working tree.
	Archive bool `json:"archive,omitempty"`

	// Task is the prompt, byte for byte as the user gave it, in valid UTF-8 without NUL. No part of the system
	// interprets it. In a mode that Continues it may be empty; a text that differs from the remote's is an addition to it.
	Task string `json:"task"`

	// Repo is the repository as the user named it (URL or host path), without credentials. Empty means a task without
	// repository and branch.
	Repo string `json:"repo"`
	// CloneURL is the URL for fetch and push. It equals Repo for a remote repository and is a served URL for one on the host.
	CloneURL string `json:"clone_url"`
	// Branch is the base: a branch, a tag or a commit id, tried in this order. Empty means the remote's default branch.
	Branch       string `json:"branch"`
	TargetBranch string `json:"target_branch"` // the task's branch: agent/<task id>-<slug>
	// Repos are further repositories that the task may change. A rebase leaves them alone.
	Repos []OrderRepo `json:"repos,omitempty"`

	Validate []Check `json:"validate,omitempty"`
	Dev      *Dev    `json:"dev,omitempty"`
	Repair   Repair  `json:"repair,omitzero"`
	Harness  Harness `json:"harness"`
	Review   *Review `json:"review,omitempty"` // the feedback for ModeRevise
	// Rebase configures ModeRebase.
	Rebase *Rebase `json:"rebase,omitempty"`
	// Standalone configures ModeStandalone.
	Standalone *Standalone `json:"stand,omitempty"`

	// MaxBudgetUSD limits the agent's cost for all attempts of the task together, in US dollars. nil means no limit.
	MaxBudgetUSD *float64 `json:"max_budget_usd,omitempty"`
	// SpentUSDByAttempt is the cost of earlier attempts that only the host knows, in US dollars by attempt id. It is
	// used for attempts whose cost is missing in the remote's state, because their box vanished.
	SpentUSDByAttempt map[string]float64 `json:"spent_usd_by_attempt,omitempty"`
	// TimeoutMinutes is the limit from the order's arrival to the start of the landing, in minutes; it may be fractional.
	TimeoutMinutes float64 `json:"timeout_minutes"`

	// Strict decides the outcome if checks fail before and after the task: true means failure, false success, nil unproven.
	Strict *bool `json:"strict,omitempty"`
	// NoProof skips the checks on clean checkouts of base and head. Only the validation in the working tree remains.
	NoProof bool `json:"no_proof,omitempty"`
	// TrustBranchConfig lets the agent of a continued task use the branch's agent settings, hooks and MCP servers.
	// Otherwise the base branch's are used while the agent works.
	TrustBranchConfig bool `json:"trust_branch_config,omitempty"`

	PR *PullRequest `json:"pr,omitempty"`

	// PushIntervalSeconds and CheckpointIntervalSeconds are the intervals of pushes of commits and of checkpoints. 0 means the default.
	PushIntervalSeconds       float64 `json:"push_interval_seconds,omitempty"`
	CheckpointIntervalSeconds float64 `json:"checkpoint_interval_seconds,omitempty"`
	// HangTimeoutSeconds is how long an agent may be inactive (no event, no change in the tree, no CPU use or progress
	// of children) until it counts as hung. 0 means the default.
	HangTimeoutSeconds float64 `json:"hang_timeout_seconds,omitempty"`

	// PushSecrets is PushSecretsAllow to push commits that contain the value of a secret. "" means that such commits
	// are kept and not pushed.
	PushSecrets string `json:"push_secrets,omitempty"`

	Author Identity `json:"author"` // the author of commits by and for the agent
	// CoAuthor is the agent, if Author is a person. A trailer in commit messages names it.
	CoAuthor *Identity `json:"co_author,omitempty"`
}

// Values of PushSecrets.
const (
	PushSecretsRefuse = "refuse"
	PushSecretsAllow  = "allow"
)

// Check is a named shell command.
type Check struct {
	Name string `json:"name"`
	Run  string `json:"run"`
}

// Dev is the development server of the project.
type Dev struct {
	Command string `json:"command"`
	Port    int    `json:"port"`
	// ReadyPath answers with a status below 500 once the server is ready; "" means "/".
	ReadyPath string   `json:"ready_path,omitempty"`
	Pages     []string `json:"pages,omitempty"` // the paths for screenshots; empty means ReadyPath
	// StartTimeoutSeconds limits the time from start to readiness. 0 means DefaultDevStart.
	StartTimeoutSeconds float64 `json:"start_timeout_seconds,omitempty"`
}

// Repair sends failed validation back to the agent.
type Repair struct {
	// MaxAttempts is the maximum number of rounds; 0 means none. The task's budget and timeout apply, too.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// Rebase configures a rebase of the task's commits.
type Rebase struct {
	Onto string `json:"onto,omitempty"` // a branch of the remote; empty means the task's base branch
	// Foreign also rebases commits of others on the task's branch. Without it they are an error.
	Foreign bool `json:"foreign,omitempty"`
}

// Harness selects and configures the adapter to the inner agent.
type Harness struct {
	Name    string   `json:"name"`
	Command []string `json:"command,omitempty"` // only for the command harness
	Model   string   `json:"model,omitempty"`
	Args    []string `json:"args,omitempty"`
	Version string   `json:"version,omitempty"`
}

// PullRequest describes the pull request to open after landing.
type PullRequest struct {
	Labels    []string `json:"labels,omitempty"`
	Draft     bool     `json:"draft,omitempty"`
	Reviewers []string `json:"reviewers,omitempty"`
	Base      string   `json:"base,omitempty"`
	// APIURL is the URL of the forge's API; "" means that it is derived from the remote.
	APIURL string `json:"api_url,omitempty"`
	// Repository is owner/name on the forge if it differs from the remote's path; it needs APIURL.
	Repository string `json:"repository,omitempty"`
}

// Identity is a git author.
type Identity struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// GitCredential opens the remote: Token (with an optional Username) for HTTP, or SSHKey (a PEM private key) for SSH.
type GitCredential struct {
	Username   string `json:"username,omitempty"`
	Token      string `json:"token,omitempty"`
	SSHKey     string `json:"ssh_key,omitempty"`
	KnownHosts string `json:"known_hosts,omitempty"`
	// CA is the only accepted authority of the remote's certificate, in PEM; "" means the box's authorities.
	CA string `json:"ca,omitempty"`
	// Renew reports that Token is an installation token of Envelope.App, which expires after an hour.
	Renew bool `json:"renew,omitempty"`
}

// ForgeApp is an App of a forge, such as a GitHub App, whose installation tokens open remote and forge instead of a person's token.
type ForgeApp struct {
	ID           string `json:"id"`                     // the App's id or client id
	Installation int64  `json:"installation,omitempty"` // 0 means looked up by the repository
	PrivateKey   string `json:"private_key"`            // PEM
}

// Envelope is the document that PID 1 reads on standard input.
type Envelope struct {
	Order   Order             `json:"order"`
	Secrets map[string]string `json:"secrets,omitempty"`
	Git     *GitCredential    `json:"git,omitempty"`
	// RepoGit has the credentials of Order.Repos by name.
	RepoGit map[string]*GitCredential `json:"repo_git,omitempty"`
	// ForgeToken opens the pull request; "" means that App does, or that there is none.
	ForgeToken string `json:"forge_token,omitempty"`
	// App creates and renews tokens; nil if there is none, or a user's token takes precedence.
	App *ForgeApp `json:"app,omitempty"`
}

// MaxRepairs is the limit of Repair.MaxAttempts.
const MaxRepairs = 10

// MaxEnvelope is the limit of an envelope, in bytes. The largest part is the task text, at most MaxTask; JSON escapes a
// byte in at most six.
const (
	MaxTask     = 4 << 20
	MaxEnvelope = 6*MaxTask + 4<<20
)

// Defaults of host and guest.
const (
	DefaultTimeout      = 30 * time.Minute
	DefaultServiceStart = 60 * time.Second
	// DefaultPushInterval and DefaultCheckpointInterval limit the loss at a sudden end. Only the second one is guaranteed.
	DefaultPushInterval       = 2 * time.Minute
	DefaultCheckpointInterval = time.Minute
	DefaultDevStart           = 60 * time.Second // enough to build a development server of some size
	// DefaultHangTimeout is longer than a model works on one answer without output: ten minutes cut real sessions.
	DefaultHangTimeout = 15 * time.Minute
)

// PushInterval returns the time between pushes of committed work.
func (o *Order) PushInterval() time.Duration {
	return seconds(o.PushIntervalSeconds, DefaultPushInterval)
}

// CheckpointInterval returns the time between checkpoints.
func (o *Order) CheckpointInterval() time.Duration {
	return seconds(o.CheckpointIntervalSeconds, DefaultCheckpointInterval)
}

// HangTimeout returns how long an agent may be inactive.
func (o *Order) HangTimeout() time.Duration { return seconds(o.HangTimeoutSeconds, DefaultHangTimeout) }

func seconds(s float64, def time.Duration) time.Duration {
	if s <= 0 {
		return def
	}
	return time.Duration(s * float64(time.Second))
}

// StartTimeout returns the limit of the time from the server's start to readiness.
func (d *Dev) StartTimeout() time.Duration { return seconds(d.StartTimeoutSeconds, DefaultDevStart) }

// Timeout returns the wall-clock limit of the attempt; ModeStandalone has none.
func (o *Order) Timeout() time.Duration {
	if o.TimeoutMinutes <= 0 {
		return DefaultTimeout
	}
	return time.Duration(o.TimeoutMinutes * float64(time.Minute))
}

// CheckLimit limits one run of a check. A detected check may never end, and gets at most a quarter of the attempt's time.
func (o *Order) CheckLimit() time.Duration {
	const most = 10 * time.Minute // most test suites finish within it
	if !o.Found {
		return most
	}
	return min(most, o.Timeout()/4)
}

// DecodeOrder reads an order strictly from a complete document.
func DecodeOrder(b []byte) (*Order, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var o Order
	if err := dec.Decode(&o); err != nil {
		return nil, fmt.Errorf("read work order: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read work order: unexpected data after the document")
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &o, nil
}

// Check validates the order. Its error has all mistakes.
func (o *Order) Check() error {
	if o.Version != Version {
		// Other fields of another version cannot be interpreted.
		return fmt.Errorf("work order has version %d, this program reads version %d: use a CLI and an image of the same release",
			o.Version, Version)
	}
	var p problems
	p.require(ValidTaskID(o.TaskID), "task_id %q is not T- and 8 of 0-9A-Z", o.TaskID)
	p.require(slices.Contains(Modes(), o.Mode), "mode %q is unknown (known: %q)", o.Mode, Modes())
	o.checkIfExists(&p)
	p.require(!o.Mode.Continues() || o.Repo != "", "a task without a repository cannot be resumed")
	p.require((o.Mode == ModeRevise) == (o.Review != nil), "mode %s: review is required in mode revise and only there", o.Mode)
	p.require((o.Mode == ModeRebase) == (o.Rebase != nil), "mode %s: rebase is required in mode rebase and only there", o.Mode)
	if o.Review != nil {
		o.Review.check(&p)
	}
	if o.Rebase != nil {
		p.require(o.Rebase.Onto == "" || ValidRefName(o.Rebase.Onto), "rebase.onto %q is not a valid branch name", o.Rebase.Onto)
	}
	p.require(o.Repair.MaxAttempts >= 0 && o.Repair.MaxAttempts <= MaxRepairs, "repair.max_attempts %d is not from 0 to %d",
		o.Repair.MaxAttempts, MaxRepairs)
	// A plan has no attempt id; publish.Claim needs one.
	p.require(o.AttemptID == "" || ValidAttemptID(o.AttemptID), "attempt_id %q is not 16 hex digits", o.AttemptID)
	o.checkStandalone(&p)
	p.require(o.Mode.Continues() || o.Mode == ModeStandalone || strings.TrimSpace(o.Task) != "", "task is empty")
	if err := checkText(o.Task); err != nil {
		p.errs = append(p.errs, err)
	}
	if o.Repo != "" {
		o.checkRepo(&p)
	}
	o.checkRepos(&p)
	p.require(o.Harness.Name != "" || o.Mode == ModeStandalone, "harness is missing")
	o.checkSpec(&p)
	if o.MaxBudgetUSD != nil {
		p.require(positive(*o.MaxBudgetUSD), "max_budget_usd %v is not a positive number", *o.MaxBudgetUSD)
	}
	for id, usd := range o.SpentUSDByAttempt {
		p.require(ValidAttemptID(id) && positive(usd), "spent_usd_by_attempt: %v of %q is not a positive number by attempt id", usd, id)
	}
	p.require(positive(o.TimeoutMinutes) || o.Mode == ModeStandalone, "timeout_minutes %v is not a positive number", o.TimeoutMinutes)
	for name, v := range map[string]float64{
		"push_interval_seconds": o.PushIntervalSeconds, "checkpoint_interval_seconds": o.CheckpointIntervalSeconds,
		"hang_timeout_seconds": o.HangTimeoutSeconds,
	} {
		p.require(v == 0 || positive(v), "%s %v is not a positive number", name, v)
	}
	if len(p.errs) == 0 {
		return nil
	}
	return fmt.Errorf("work order is invalid: %w", errors.Join(p.errs...))
}

func checkText(s string) error {
	switch {
	case len(s) > MaxTask:
		return fmt.Errorf("task has %d bytes, the limit is %d", len(s), MaxTask)
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return errors.New("task is not text: it must be UTF-8 without NUL bytes")
	}
	return nil
}

type problems struct{ errs []error }

func (p *problems) require(ok bool, format string, a ...any) {
	if !ok {
		p.errs = append(p.errs, fmt.Errorf(format, a...))
	}
}

func positive(f float64) bool { return f > 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }

func (o *Order) checkRepo(p *problems) {
	p.require(o.CloneURL != "", "clone_url is missing")
	p.require(ValidRefName(o.TargetBranch), "target_branch %q is not a valid branch name", o.TargetBranch)
	p.require(o.Branch == "" || ValidRefName(o.Branch), "branch %q is not a valid branch name", o.Branch)
	p.require(o.Branch != o.TargetBranch, "branch and target_branch are both %q: the base branch is never written", o.Branch)
}

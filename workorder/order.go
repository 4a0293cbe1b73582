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

// Order is the work order: everything the guest has to know to do the task,
// except secrets, which travel beside it in an Envelope and are never written to disk.
type Order struct {
	Spec

	Version int    `json:"version"`
	TaskID  string `json:"task_id"`
	Mode    Mode   `json:"mode"`
	// AttemptID names this box's try at the task: 16 hex digits, new for every box.
	// With the box's own incarnation it is the holder of the task's lease on the remote.
	AttemptID string `json:"attempt_id,omitempty"`
	// IfExists says what the box does when the remote knows the task already; empty: ExistsRefuse.
	IfExists IfExists `json:"if_exists,omitempty"`
	// Ended lists attempts that the host knows to be over (their container is gone or
	// has exited), so that a lease of theirs is not waited for.
	Ended   []string `json:"ended,omitempty"`
	Project string   `json:"project"`
	// Bundle says that commits of an earlier attempt lie at BundleIn: they never
	// reached the remote, and come before what the remote has.
	Bundle bool `json:"bundle,omitempty"`
	// Archive says that files of an earlier attempt that git could not take lie at
	// ArchiveIn: they are laid over the work tree.
	Archive bool `json:"archive,omitempty"`

	// Task is the prompt, byte for byte as the user gave it. It is data: no
	// part of the system interprets it. Always valid UTF-8 without NUL. In
	// a mode that GoesOn it may be empty (the remote knows the task); one that differs
	// from what the remote knows is an addition to it.
	Task string `json:"task"`

	// Repo is the repository as the user named it (URL or host path), without
	// credentials. Empty means the task has no repository, and no branch.
	Repo string `json:"repo"`
	// CloneURL is where the guest fetches and pushes. It equals Repo for a
	// remote repository and is a served URL for one that lies on the host.
	CloneURL string `json:"clone_url"`
	// Branch is the base: a branch, or else a tag, or else the id of a commit. Empty means the remote's default branch.
	Branch string `json:"branch"`
	// TargetBranch receives the work: agent/<task id>-<slug>.
	TargetBranch string `json:"target_branch"`

	Validate []Command `json:"validate,omitempty"`
	Dev      *Dev      `json:"dev,omitempty"`
	Repair   Repair    `json:"repair,omitzero"`
	Harness  Harness   `json:"harness"`
	// Review is the feedback of ModeRevise.
	Review *Review `json:"review,omitempty"`
	// Rebase is what ModeRebase does.
	Rebase *Rebase `json:"rebase,omitempty"`
	// Stand is how long the box of ModeStand stays.
	Stand *Stand `json:"stand,omitempty"`

	// MaxBudgetUSD caps what the agent may spend on the task, in US dollars, all
	// attempts together. Nil is no cap.
	MaxBudgetUSD *float64 `json:"max_budget_usd,omitempty"`
	// SpentUSDByAttempt is what the host knows former attempts to have cost, in US
	// dollars by attempt id, where the remote's state did not know it: a box that vanished
	// told the host only. It counts for an attempt whose cost the state still lacks.
	SpentUSDByAttempt map[string]float64 `json:"spent_usd_by_attempt,omitempty"`
	// TimeoutMinutes caps the wall clock from the order's arrival to the start
	// of the landing, in minutes; fractions count.
	TimeoutMinutes float64 `json:"timeout_minutes"`

	// Strict decides about checks that fail before and after the task: true makes the run a failure, false a success. Nil is unproven.
	Strict *bool `json:"strict,omitempty"`
	// NoProof leaves out running the checks on base and head, in clean checkouts: validation in the
	// work tree is all then.
	NoProof bool `json:"no_proof,omitempty"`
	// TrustBranchConfig lets a continued task's agent see the agents' own settings,
	// hooks and MCP servers as the branch has them. Without it they are those of the base
	// branch while the agent works.
	TrustBranchConfig bool `json:"trust_branch_config,omitempty"`

	PR *PullRequest `json:"pr,omitempty"`

	// PushInterval and CheckpointInterval are the periods, in seconds, between
	// pushes of committed work and snapshots of uncommitted work. 0 means the default.
	PushIntervalSeconds       float64 `json:"push_interval_seconds,omitempty"`
	CheckpointIntervalSeconds float64 `json:"checkpoint_interval_seconds,omitempty"`
	// HangTimeoutSeconds is how long an agent may show no sign of life (no event, no
	// change in the tree, no CPU or child progress) until it counts as hung. 0 means the default.
	HangTimeoutSeconds float64 `json:"hang_timeout_seconds,omitempty"`

	// PushSecrets is PushSecretsAllow where commits with the value of a secret are pushed. Empty means that they are kept, and not pushed.
	PushSecrets string `json:"push_secrets,omitempty"`

	// Author signs the commits made by and for the agent.
	Author Identity `json:"author"`
	// CoAuthor is the agent, where Author is somebody else: messages of commits name it in a trailer.
	CoAuthor *Identity `json:"co_author,omitempty"`
}

// The values of PushSecrets.
const (
	PushSecretsRefuse = "refuse"
	PushSecretsAllow  = "allow"
)

// Command is a named shell command.
type Command struct {
	Name string `json:"name"`
	Run  string `json:"run"`
}

// Dev is the development server of the project.
type Dev struct {
	Command string `json:"command"`
	Port    int    `json:"port"`
	// ReadyPath answers with less than 500 when the server is ready; empty: "/".
	ReadyPath string `json:"ready_path,omitempty"`
	// Pages are the paths that pictures are taken of; empty: ReadyPath.
	Pages []string `json:"pages,omitempty"`
	// StartTimeoutSeconds bounds the start to readiness. 0: DefaultDevStart.
	StartTimeoutSeconds float64 `json:"start_timeout_seconds,omitempty"`
}

// Repair sends failed validation back to the agent.
type Repair struct {
	// MaxAttempts is how often; 0 means never. Budget and time of the task bound it, too.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// Rebase says onto what the task's commits go.
type Rebase struct {
	// Onto is a branch of the remote; empty means the task's base branch.
	Onto string `json:"onto,omitempty"`
	// Foreign also moves commits that somebody else pushed to the task's branch. Without
	// it they are a reason to refuse.
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
	// APIURL is the forge's API where it cannot be told from the remote; empty means from the remote.
	APIURL string `json:"api_url,omitempty"`
	// Repository is owner/name on the forge where the remote's path is another; needs APIURL.
	Repository string `json:"repository,omitempty"`
}

// Identity is a git author.
type Identity struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// GitCredential opens the remote. Either Token (with an optional Username) for
// HTTP, or SSHKey (a PEM private key) for SSH.
type GitCredential struct {
	Username   string `json:"username,omitempty"`
	Token      string `json:"token,omitempty"`
	SSHKey     string `json:"ssh_key,omitempty"`
	KnownHosts string `json:"known_hosts,omitempty"`
	// CA is, in PEM, the only authority that the remote's certificate may come from; empty means those of the box.
	CA string `json:"ca,omitempty"`
	// Renew: Token is an installation token of Envelope.App, which lives an hour.
	Renew bool `json:"renew,omitempty"`
}

// GitHubApp is an App whose installation tokens open remote and forge, in place of a person's token.
type GitHubApp struct {
	ID           string `json:"id"`                     // the App's id or client id
	Installation int64  `json:"installation,omitempty"` // 0 means asked for by the repository
	PrivateKey   string `json:"private_key"`            // PEM
}

// Envelope is the one document that PID 1 reads on standard input.
type Envelope struct {
	Order   Order             `json:"order"`
	Secrets map[string]string `json:"secrets,omitempty"`
	Git     *GitCredential    `json:"git,omitempty"`
	// ForgeToken opens the pull request; empty: App does, or there is none.
	ForgeToken string `json:"forge_token,omitempty"`
	// App makes and renews tokens; nil means there is none, or a token of the user's goes before it.
	App *GitHubApp `json:"app,omitempty"`
}

// MaxRepairs bounds Repair.MaxAttempts: who needs more has another problem.
const MaxRepairs = 10

// MaxEnvelope bounds what PID 1 reads, in bytes. The largest part is the task
// text, whose own bound is MaxTask; JSON escapes a byte in at most six.
const (
	MaxTask     = 4 << 20
	MaxEnvelope = 6*MaxTask + 4<<20
)

// Defaults that both sides rely on.
const (
	DefaultTimeout      = 30 * time.Minute
	DefaultServiceStart = 60 * time.Second
	// DefaultPushInterval and DefaultCheckpointInterval bound what a sudden end can
	// cost. The second is the one that is promised.
	DefaultPushInterval       = 2 * time.Minute
	DefaultCheckpointInterval = time.Minute
	// DefaultDevStart is what a development server of some size takes to build.
	DefaultDevStart = 60 * time.Second
	// DefaultHangTimeout is longer than a model thinks about one answer without a
	// sign of it: with ten minutes real sessions were cut.
	DefaultHangTimeout = 15 * time.Minute
)

// PushInterval is the time between pushes of committed work.
func (o *Order) PushInterval() time.Duration {
	return seconds(o.PushIntervalSeconds, DefaultPushInterval)
}

// CheckpointInterval is the time between snapshots of uncommitted work.
func (o *Order) CheckpointInterval() time.Duration {
	return seconds(o.CheckpointIntervalSeconds, DefaultCheckpointInterval)
}

// HangTimeout is how long an agent may show no sign of life.
func (o *Order) HangTimeout() time.Duration {
	return seconds(o.HangTimeoutSeconds, DefaultHangTimeout)
}

func seconds(s float64, def time.Duration) time.Duration {
	if s <= 0 {
		return def
	}
	return time.Duration(s * float64(time.Second))
}

// StartTimeout is the bound on the server's way from its start to ready.
func (d *Dev) StartTimeout() time.Duration {
	return seconds(d.StartTimeoutSeconds, DefaultDevStart)
}

// Timeout is the wall-clock budget of the run; ModeStand has none.
func (o *Order) Timeout() time.Duration {
	if o.TimeoutMinutes <= 0 {
		return DefaultTimeout
	}
	return time.Duration(o.TimeoutMinutes * float64(time.Minute))
}

// DecodeEnvelope reads exactly one envelope, strictly, and validates the order.
// It reads to the first complete document and does not wait for the end of r.
func DecodeEnvelope(r io.Reader) (*Envelope, error) {
	dec := json.NewDecoder(io.LimitReader(r, MaxEnvelope))
	dec.DisallowUnknownFields()
	var e Envelope
	if err := dec.Decode(&e); err != nil {
		return nil, fmt.Errorf("read work order: %w", err)
	}
	if err := e.Order.Check(); err != nil {
		return nil, err
	}
	for _, n := range e.Order.SecretNames {
		if _, ok := e.Secrets[n]; !ok {
			return nil, fmt.Errorf("work order names the secret %s but does not carry it", n)
		}
	}
	return &e, nil
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
		return nil, errors.New("read work order: more follows after the document")
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &o, nil
}

// Check verifies what both sides rely on and reports every mistake at once.
func (o *Order) Check() error {
	if o.Version != Version {
		// Nothing else can be trusted in a document of another version.
		return fmt.Errorf("work order has version %d, this program reads version %d: use a CLI and an image of the same release", o.Version, Version)
	}
	var c check
	c.that(ValidTaskID(o.TaskID), "task_id %q is not T- and 8 of 0-9A-Z", o.TaskID)
	c.that(slices.Contains(Modes(), o.Mode), "mode %q is not known (known: %q)", o.Mode, Modes())
	o.checkIfExists(&c)
	c.that(!o.Mode.GoesOn() || o.Repo != "", "a task without a repository cannot go on: nothing of it is kept")
	c.that((o.Mode == ModeRevise) == (o.Review != nil), "mode %s and review do not go together: revise has one, no other mode has", o.Mode)
	c.that((o.Mode == ModeRebase) == (o.Rebase != nil), "mode %s and rebase do not go together: rebase has one, no other mode has", o.Mode)
	if o.Review != nil {
		o.Review.check(&c)
	}
	if o.Rebase != nil {
		c.that(o.Rebase.Onto == "" || ValidRefName(o.Rebase.Onto), "rebase.onto %q is not a valid branch name", o.Rebase.Onto)
	}
	c.that(o.Repair.MaxAttempts >= 0 && o.Repair.MaxAttempts <= MaxRepairs, "repair.max_attempts %d is not from 0 to %d", o.Repair.MaxAttempts, MaxRepairs)
	// A plan has none; publish.Claim needs one.
	c.that(o.AttemptID == "" || ValidAttemptID(o.AttemptID), "attempt_id %q is not 16 hex digits", o.AttemptID)
	o.checkStand(&c)
	c.that(o.Mode.GoesOn() || o.Mode == ModeStand || strings.TrimSpace(o.Task) != "", "task is empty")
	if err := checkText(o.Task); err != nil {
		c.errs = append(c.errs, err)
	}
	if o.Repo != "" {
		o.checkRepo(&c)
	}
	c.that(o.Harness.Name != "" || o.Mode == ModeStand, "harness is missing")
	o.checkSpec(&c)
	if o.MaxBudgetUSD != nil {
		c.that(positive(*o.MaxBudgetUSD), "max_budget_usd %v is not a positive number", *o.MaxBudgetUSD)
	}
	for id, usd := range o.SpentUSDByAttempt {
		c.that(ValidAttemptID(id) && positive(usd), "spent_usd_by_attempt has %v of %q: it wants a positive number of an attempt of 16 hex digits", usd, id)
	}
	c.that(positive(o.TimeoutMinutes) || o.Mode == ModeStand, "timeout_minutes %v is not a positive number", o.TimeoutMinutes)
	for name, v := range map[string]float64{
		"push_interval_seconds": o.PushIntervalSeconds, "checkpoint_interval_seconds": o.CheckpointIntervalSeconds, "hang_timeout_seconds": o.HangTimeoutSeconds,
	} {
		c.that(v == 0 || positive(v), "%s %v is not a positive number", name, v)
	}
	if len(c.errs) == 0 {
		return nil
	}
	return fmt.Errorf("work order is invalid: %w", errors.Join(c.errs...))
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

// check collects what does not hold.
type check struct{ errs []error }

func (c *check) that(ok bool, format string, a ...any) {
	if !ok {
		c.errs = append(c.errs, fmt.Errorf(format, a...))
	}
}

func positive(f float64) bool { return f > 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }

func (o *Order) checkRepo(c *check) {
	c.that(o.CloneURL != "", "clone_url is missing")
	c.that(ValidRefName(o.TargetBranch), "target_branch %q is not a valid branch name", o.TargetBranch)
	c.that(o.Branch == "" || ValidRefName(o.Branch), "branch %q is not a valid branch name", o.Branch)
	c.that(o.Branch != o.TargetBranch, "branch and target_branch are both %q: the base branch is never written", o.Branch)
}

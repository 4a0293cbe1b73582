package projects

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Project is a project file with its defaults applied.
type Project struct {
	// File is where it was read from, as shown to the user; Dir is the folder its
	// relative paths start from.
	File, Dir string

	Name string
	// Description is what it is for, in a line.
	Description string
	Repo        string // a URL, or an absolute path
	Branch      string
	Supabase    bool
	Services    []workorder.Service
	Env         map[string]string
	Secrets     []Secret
	Packages    []string
	// Tools are the versions that are asked for, by tool.
	Tools    map[string]string
	Setup    []string
	Validate []workorder.Check
	Dev      *workorder.Dev
	Repair   workorder.Repair
	Harness  workorder.Harness

	// Agents are those of a terminal, by name, beside Harness.
	Agents []Agent
	// Init are commands in a new standalone sandbox, after setup: one that fails fails nothing.
	Init []string
	// Briefing is additional text for agents at a terminal.
	Briefing string

	MaxBudgetUSD   *float64
	TimeoutMinutes float64
	PR             *workorder.PullRequest
	Network        workorder.NetworkPolicy
	Gateway        workorder.Gateway
	Limits         workorder.Limits
	// PushSecrets is workorder.PushSecretsAllow or empty.
	PushSecrets string
	// Author is who commits, as Name <email>; empty means the user.
	Author string
	// Strict decides about checks that fail before and after the task (workorder.Order.Strict); nil if the file does not say.
	Strict *bool
	// NoProof leaves out the checks on base and head in clean checkouts.
	NoProof bool
	// SetupCache is workorder.BoxSpec.SetupCache. No project file has it.
	SetupCache string
	// TrustBranchConfig leaves agents' settings as a continued branch has them.
	TrustBranchConfig bool

	PushIntervalSeconds       float64
	CheckpointIntervalSeconds float64
	HangTimeoutSeconds        float64

	// The launcher needs these; the order does not carry them.
	Isolation  string
	OCIRuntime string // empty means the engine's default
	Image      string // empty means the image the CLI builds

	// Found reports that the file was found by the search from the current directory, not named by the user.
	Found bool
	// Detected says that there is no file: the content was found in the repository.
	Detected bool
	// ByPath says that its path was named, and not a name that is looked for in the user's own folders.
	ByPath bool

	options LoadOptions
	tree    *value
	content []byte
}

// Agent is a harness by a name of the user's.
type Agent struct {
	Name    string
	Harness workorder.Harness
}

// Path is where the file lies; empty for one that is shipped with the program, and for none.
func (p *Project) Path() string {
	if p.Detected || strings.HasPrefix(p.File, builtin) {
		return ""
	}
	return filepath.Join(p.Dir, filepath.Base(p.File))
}

// Content is the file as it was read.
func (p *Project) Content() []byte { return p.content }

// Secret says where the host finds the value of an environment variable.
type Secret struct {
	Name string
	// From are the places that it may be read from: the first that has it counts.
	From []Ref
	// Optional says that the run goes without it where none of them has it.
	Optional bool
	// Use says who gets the value.
	Use workorder.SecretUse
}

// Ref is a place that a secret may be read from.
type Ref struct {
	// Scheme is SecretEnv, SecretFile, SecretCmd or SecretLogin.
	Scheme string
	// Target is a variable, an absolute path, a shell command, or a harness.
	Target string
}

func (r Ref) String() string { return r.Scheme + "://" + r.Target }

// Has reports whether one of the secret's places is of that scheme.
func (s Secret) Has(scheme string) bool {
	return slices.ContainsFunc(s.From, func(r Ref) bool { return r.Scheme == scheme })
}

// SecretNames lists the names of the secrets, sorted.
func (p *Project) SecretNames() []string {
	var names []string
	for _, s := range p.Secrets {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

func (p *Project) secretUses() map[string]workorder.SecretUse {
	var uses map[string]workorder.SecretUse
	for _, s := range p.Secrets {
		if s.Use == workorder.SecretForCommands {
			continue
		}
		if uses == nil {
			uses = map[string]workorder.SecretUse{}
		}
		uses[s.Name] = s.Use
	}
	return uses
}

// Transport is how a repository is reached.
type Transport = git.Transport

// The transports.
const (
	TransportNone  = git.TransportNone
	TransportHTTP  = git.TransportHTTP
	TransportSSH   = git.TransportSSH
	TransportLocal = git.TransportLocal
)

// RepoTransport returns how a repository is reached, or an *OptionError.
func RepoTransport(repo string) (Transport, error) {
	t, err := git.RepoTransport(repo)
	if bad, ok := errors.AsType[*git.RepoURLError](err); ok {
		return TransportNone, &OptionError{Name: "repo", Message: bad.Message, Hint: bad.Hint}
	}
	return t, err
}

// Transport says how the repository is reached.
func (p *Project) Transport() Transport {
	t, _ := git.RepoTransport(p.Repo) // it was checked when it was read
	return t
}

// OrderInput is what a task adds to its project.
type OrderInput struct {
	// TaskID empty means a new one.
	TaskID string
	Task   string
	// AttemptID empty means a new one.
	AttemptID string
	// Mode empty means create.
	Mode workorder.Mode
	// Review is the feedback of ModeRevise.
	Review *workorder.Review
	// TargetBranch empty means made of the task. Ignored without a repository.
	TargetBranch string
	// Rebase is what workorder.ModeRebase does; nil in other modes.
	Rebase *workorder.Rebase
	// Author zero: DefaultAuthor. The project's own comes before it.
	Author workorder.Identity
}

// Spec is the box that the project wants.
func (p *Project) Spec() workorder.BoxSpec {
	env, imageEnv := text.SplitReferences(p.Env)
	return workorder.BoxSpec{
		Image: p.Image, Isolation: p.Isolation, OCIRuntime: p.OCIRuntime,
		Supabase: p.Supabase, Services: slices.Clone(p.Services), Env: env, ImageEnv: imageEnv, SecretNames: p.SecretNames(),
		SecretUses: p.secretUses(),
		Packages:   slices.Clone(p.Packages), Tools: maps.Clone(p.Tools), Setup: slices.Clone(p.Setup),
		SetupCache: p.SetupCache, Found: p.Detected,
		Network: p.Network, Gateway: p.Gateway, Limits: p.Limits,
	}
}

// Order builds the work order. CloneURL is set for a remote repository; for one
// on the host it is empty, and filled by who serves it.
func (p *Project) Order(in OrderInput) (workorder.Order, error) {
	o := workorder.Order{
		Version: workorder.Version, TaskID: in.TaskID, Mode: in.Mode, Project: p.Name, Task: in.Task,
		Repo: p.Repo, Branch: p.Branch, TargetBranch: in.TargetBranch,
		BoxSpec: p.Spec(), Validate: slices.Clone(p.Validate),
		Dev: p.Dev, Repair: p.Repair, Harness: p.Harness, MaxBudgetUSD: p.MaxBudgetUSD, TimeoutMinutes: p.TimeoutMinutes,
		PR: p.PR, TrustBranchConfig: p.TrustBranchConfig, NoProof: p.NoProof, Strict: p.Strict, PushSecrets: p.PushSecrets,
		PushIntervalSeconds: p.PushIntervalSeconds, CheckpointIntervalSeconds: p.CheckpointIntervalSeconds,
		HangTimeoutSeconds: p.HangTimeoutSeconds, AttemptID: in.AttemptID,
		Author: in.Author, Review: in.Review, Rebase: in.Rebase,
	}
	if o.TaskID == "" {
		o.TaskID = workorder.NewTaskID()
	}
	if o.AttemptID == "" {
		o.AttemptID = workorder.NewAttemptID()
	}
	if o.Mode == "" {
		o.Mode = workorder.ModeCreate
	}
	if id, err := workorder.ParseIdentity(p.Author); err == nil { // it was checked when it was read
		o.Author = id
	}
	if o.Author == (workorder.Identity{}) {
		o.Author = git.DefaultAuthor()
	} else {
		o.CoAuthor = &workorder.Identity{Name: "sandbox-agent (" + p.Harness.Name + ")", Email: git.DefaultAuthor().Email}
	}
	switch {
	case o.Repo == "":
		o.Branch, o.TargetBranch, o.PR = "", "", nil
	case o.TargetBranch == "":
		o.TargetBranch = workorder.Branch(o.TaskID, o.Task)
	}
	if p.Transport() == TransportHTTP || p.Transport() == TransportSSH {
		o.CloneURL = p.Repo
	}
	checked := o
	if checked.CloneURL == "" {
		// Known only when the repository is served; all the rest is checked now.
		checked.CloneURL = o.Repo
	}
	if err := checked.Check(); err != nil {
		return workorder.Order{}, err
	}
	return o, nil
}

// InvalidError is a project file with problems.
type InvalidError struct {
	File     string
	Problems diag.List
}

func (e *InvalidError) Error() string {
	s := e.Problems.Sorted()
	if len(s) == 0 {
		return "project file " + e.File + " is invalid"
	}
	if len(s) == 1 {
		return s[0].String()
	}
	return fmt.Sprintf("%s (and %d more: see `project validate`)", s[0], len(s)-1)
}

// ExitCode is the exit code of the CLI for this error.
func (e *InvalidError) ExitCode() int { return workorder.ExitInvalid }

// Problems returns the problems an error carries, if it is about a project file.
func Problems(err error) (diag.List, bool) {
	if e, ok := errors.AsType[*InvalidError](err); ok {
		return e.Problems, true
	}
	return nil, false
}

package projects

import (
	"cmp"
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
	// File is the file's path as shown; relative paths count from Dir.
	File, Dir string

	Name        string
	Description string // one line about the project
	Repo        string // a URL, or an absolute path
	Branch      string
	Repos       []workorder.OrderRepo // without CloneURL
	Supabase    bool
	Browser     bool // the boxes have one even without Dev
	Services    []workorder.Service
	Env         map[string]string
	Secrets     []Secret
	Packages    []string
	Tools       map[string]string // the requested versions, by tool
	Setup       []string
	Validate    []workorder.Check
	Dev         *workorder.Dev
	Repair      workorder.Repair
	Harness     workorder.Harness

	Agents   []Agent  // further harnesses for terminals, by name
	Init     []string // commands in a new standalone sandbox, after setup; a failure is ignored
	Briefing Briefing

	MaxBudgetUSD   *float64
	TimeoutMinutes float64
	PR             *workorder.PullRequest
	Network        workorder.NetworkPolicy
	Gateway        workorder.Gateway
	Limits         workorder.Limits
	PushSecrets    string // workorder.PushSecretsAllow or empty
	Author         string // the committer, as Name <email>; "" means the user
	Strict         *bool  // workorder.Order.Strict; nil if the file does not set it
	// NoProof skips the checks in clean checkouts of base and head.
	NoProof bool
	// SetupCache is workorder.BoxSpec.SetupCache. Project files cannot set it.
	SetupCache string
	// TrustBranchConfig keeps agents' settings as a continued branch has them.
	TrustBranchConfig bool

	PushIntervalSeconds       float64
	CheckpointIntervalSeconds float64
	HangTimeoutSeconds        float64

	// For the launcher, not part of the order:
	Isolation  string
	OCIRuntime string // "" means the engine's default
	Image      string // "" means the default image
	Standby    int    // sandboxes that wait for tasks; 0 if the file does not say

	Found    bool // the file was found from the current directory, not named by the user
	Detected bool // there is no file: the settings were detected in the repository
	ByPath   bool // the user named the path, and not a name in one of his own directories

	options LoadOptions
	tree    *value
	content []byte
}

// Agent is a harness under a name of the user.
type Agent struct {
	Name        string
	Harness     workorder.Harness
	Permissions Permissions
}

// Permissions are what an agent at a terminal may do without asking its user. The zero value skips all questions. With a list the
// agent asks about what no rule names. A rule is a name of Tools, or Bash(PREFIX:*) for the commands with these first words.
type Permissions struct{ Allow, Deny []string }

// Asks reports whether the agent asks its user at all.
func (p Permissions) Asks() bool { return len(p.Allow)+len(p.Deny) > 0 }

// Tools are the tools that a rule of Permissions can name, as Claude Code names them.
func Tools() []string { return []string{"Bash", "Edit", "Read", "WebFetch", "WebSearch", "Write"} }

// CommandPrefix returns the first words of the commands of a rule Bash(PREFIX:*).
func CommandPrefix(rule string) (words []string, ok bool) {
	prefix, ok := strings.CutPrefix(rule, "Bash(")
	if ok {
		prefix, ok = strings.CutSuffix(prefix, ":*)")
	}
	words = strings.Fields(prefix)
	return words, ok && len(words) > 0 && !strings.ContainsAny(prefix, "()*?\"'`")
}

// Briefing says what the briefing for agents at a terminal has, beside what each has.
type Briefing struct {
	Text                         string // additional text
	NoTools, NoChecks, NoNetwork bool   // leave these parts out
}

// Path is the absolute path of the file; "" for a built-in project and without a file.
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
	From []Ref // the sources; the first one with a value counts
	// Optional lets the run start without a value.
	Optional bool
	Use      workorder.SecretUse // the only consumer of the value
}

// Ref is a source of a secret.
type Ref struct {
	Scheme string // SecretEnv, SecretFile, SecretCmd or SecretLogin
	Target string // a variable, an absolute path, a shell command, or a harness
	Tool   string // the program of the command for a reference such as op://, or ""
}

func (r Ref) String() string { return r.Scheme + "://" + r.Target }

// Has reports whether one of the secret's sources has that scheme.
func (s Secret) Has(scheme string) bool {
	return slices.ContainsFunc(s.From, func(r Ref) bool { return r.Scheme == scheme })
}

// SecretNames returns the names of the secrets, sorted.
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

// Transport returns how the project's repository is reached.
func (p *Project) Transport() Transport {
	t, _ := git.RepoTransport(p.Repo) // checked when it was read
	return t
}

// OrderInput is what a task adds to its project.
type OrderInput struct {
	TaskID       string // "" means a new one
	Task         string
	AttemptID    string             // "" means a new one
	Mode         workorder.Mode     // "" means ModeCreate
	Review       *workorder.Review  // the feedback of ModeRevise
	TargetBranch string             // "" means derived from the task; ignored without a repository
	Rebase       *workorder.Rebase  // of ModeRebase
	Author       workorder.Identity // used if the project names none; zero means sandbox-agent itself
}

// Spec returns the project's box.
func (p *Project) Spec() workorder.BoxSpec {
	env, imageEnv := text.SplitReferences(p.Env)
	harnesses := []string{p.Harness.Name}
	for _, a := range p.Agents {
		harnesses = append(harnesses, a.Harness.Name)
	}
	return workorder.BoxSpec{
		Parts: workorder.Parts(p.Supabase, p.Browser || p.Dev != nil, harnesses...),
		Image: p.Image, Isolation: p.Isolation, OCIRuntime: p.OCIRuntime,
		Supabase: p.Supabase, Services: slices.Clone(p.Services), Env: env, ImageEnv: imageEnv, SecretNames: p.SecretNames(),
		SecretUses: p.secretUses(),
		Packages:   slices.Clone(p.Packages), Tools: maps.Clone(p.Tools), Setup: slices.Clone(p.Setup),
		SetupCache: p.SetupCache, Found: p.Detected,
		Network: p.Network, Gateway: p.Gateway, Limits: p.Limits,
	}
}

// Order builds the work order. CloneURL is empty for a local repository; its server fills it in. The error lists all mistakes.
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
	o.Mode = cmp.Or(o.Mode, workorder.ModeCreate)
	if id, err := workorder.ParseIdentity(p.Author); err == nil { // checked when it was read
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
	o.Repos = p.OrderRepos()
	checked := o.Served()
	if err := checked.Check(); err != nil {
		return workorder.Order{}, err
	}
	return o, nil
}

// OrderRepos returns the further repositories. CloneURL is empty for local ones; their server fills it in.
func (p *Project) OrderRepos() []workorder.OrderRepo {
	repos := slices.Clone(p.Repos)
	for i := range repos {
		if t, _ := git.RepoTransport(repos[i].Repo); t != TransportLocal { // checked when it was read
			repos[i].CloneURL = repos[i].Repo
		}
	}
	return repos
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

// Problems returns the problems of an *InvalidError, or nil.
func Problems(err error) (diag.List, bool) {
	if e, ok := errors.AsType[*InvalidError](err); ok {
		return e.Problems, true
	}
	return nil, false
}

// Package taskrunner implements boot's interfaces with the runner and the forge.
package taskrunner

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/gateway"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/usershell"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/runner/browse"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Task implements boot.Task.
type Task struct {
	cfg runner.Config // its Env is common to all commands
	// only has the additional variables of each kind of commands.
	only  map[workorder.SecretUse][]string
	agent runner.AgentOutcome
	// answers is where the agent explains why it leaves feedback unchanged; nil without feedback.
	answers    *runner.Answers
	asked      runner.PromptTask    // without the task, which is in the order
	media      *mediaDir            // nil if the agent has not started
	shellEntry *usershell.EntryFile // for the user's shells; nil if there are none

	mu   sync.Mutex
	lost []string // reports of the services' watcher
}

// New returns a task whose commands get the order's environment, with placeholders for the gateway's keys.
func New(env *workorder.Envelope, models *gateway.Models, cfg runner.Config) *Task {
	t := &Task{cfg: cfg, only: map[workorder.SecretUse][]string{}}
	t.cfg.Env = commandEnv(env)
	for name, value := range env.Secrets {
		if use := env.Order.SecretUse(name); use != workorder.SecretForCommands && use != workorder.SecretForGateway {
			t.only[use] = append(t.only[use], name+"="+value)
		}
	}
	if models != nil {
		t.cfg.Meter = models
		for name, placeholder := range models.Env() {
			t.Setenv(name, placeholder)
		}
	}
	return t
}

// env returns the environment of one kind of commands.
func (t *Task) env(use workorder.SecretUse) []string {
	return append(slices.Clone(t.cfg.Env), t.only[use]...)
}

// ConfigFor returns the configuration of one kind of commands.
func (t *Task) ConfigFor(use workorder.SecretUse) runner.Config {
	cfg := t.cfg
	cfg.Env = t.env(use)
	return cfg
}

// Check rejects an order that the agent cannot work with.
func (t *Task) Check() error { return runner.Check(t.cfg.Order, t.env(workorder.SecretForAgent)) }

// Environ returns the current common environment of all commands.
func (t *Task) Environ() []string { return t.cfg.Env }

// SetChangeSource sets the source of the time of the work tree's last observed change.
func (t *Task) SetChangeSource(changed func() time.Time) { t.cfg.Changed = changed }

// SetShellEntry sets the entry through which shells of the user join the agent's namespace while it works.
func (t *Task) SetShellEntry(e *usershell.EntryFile) { t.shellEntry = e }

// commandEnv returns the environment of all commands: the image's variables, the user's, the project's and the secrets.
func commandEnv(env *workorder.Envelope) []string {
	o := &env.Order
	merged := imageEnv(o)
	maps.Copy(merged, o.Env)
	for name, value := range env.Secrets {
		if o.SecretUse(name) == workorder.SecretForCommands {
			merged[name] = value
		}
	}
	return list(merged)
}

// ExpandEnv resolves the variables that refer to the image's, and adds them to the order's others.
func ExpandEnv(o *workorder.Order) error {
	all, err := text.ExpandReferences(o.ImageEnv, list(imageEnv(o)))
	for _, kv := range all {
		name, value, _ := strings.Cut(kv, "=")
		o.Env[name] = value
	}
	o.ImageEnv = nil
	return err
}

// list formats variables as NAME=value.
func list(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for k, v := range env {
		all = append(all, k+"="+v)
	}
	return all
}

// packageStores keeps what package managers download out of the work tree: directories of the home, by variable.
var packageStores = map[string]string{
	"npm_config_store_dir":  ".local/share/pnpm/store", // pnpm up to 10
	"pnpm_config_store_dir": ".local/share/pnpm/store",
	"YARN_CACHE_FOLDER":     ".cache/yarn",
	"BUN_INSTALL_CACHE_DIR": ".cache/bun",
	"PIP_CACHE_DIR":         ".cache/pip",
	"UV_CACHE_DIR":          ".cache/uv",
	"POETRY_CACHE_DIR":      ".cache/pypoetry",
	"CARGO_HOME":            ".cargo",
	"GOMODCACHE":            "go/pkg/mod",
	"GRADLE_USER_HOME":      ".gradle",
	"COMPOSER_CACHE_DIR":    ".cache/composer",
	"NUGET_PACKAGES":        ".nuget/packages",
}

// imageEnv returns the environment without the project's variables and the secrets.
func imageEnv(o *workorder.Order) map[string]string {
	merged := map[string]string{}
	pnpm := o.Tools["pnpm"] != "" || strings.Contains(strings.Join(o.Setup, "\n"), "pnpm")
	for name, dir := range packageStores {
		merged[name] = workorder.SandboxHome + "/" + dir
	}
	if !pnpm {
		delete(merged, "npm_config_store_dir") // npm warns of it
	}
	if _, err := os.Stat(workorder.Workspace + "/.yarn/cache"); err == nil {
		delete(merged, "YARN_CACHE_FOLDER") // the repository keeps its packages there
	}
	for _, kv := range os.Environ() {
		if k, v, ok := strings.Cut(kv, "="); ok {
			merged[k] = v
		}
	}
	maps.Copy(merged, map[string]string{
		"HOME": workorder.SandboxHome, "USER": workorder.SandboxUser, "LOGNAME": workorder.SandboxUser,
		"SHELL": "/bin/bash", "LANG": "C.UTF-8", "TERM": "dumb", "CI": "true", "PWD": workorder.Workspace,
		"GIT_TERMINAL_PROMPT": "0",
		"GIT_AUTHOR_NAME":     o.Author.Name, "GIT_AUTHOR_EMAIL": o.Author.Email,
		"GIT_COMMITTER_NAME": o.Author.Name, "GIT_COMMITTER_EMAIL": o.Author.Email,
		"SANDBOX_AGENT_TASK_ID": o.TaskID, "SANDBOX_AGENT_MODE": string(o.Mode), "SANDBOX_AGENT_WORKSPACE": workorder.Workspace,
		"SANDBOX_AGENT_NETWORK": string(o.Network.Mode),
	})
	return merged
}

// Note adds a note about the sandbox to the agent's next runs.
func (t *Task) Note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg.Notes = append(t.cfg.Notes, text)
}

// AddFailedService records a service that failed during the run.
func (t *Task) AddFailedService(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = append(t.lost, text)
}

// Shell runs a command of setup.
func (t *Task) Shell(ctx context.Context, name, command string) (exitCode int, tail string, err error) {
	r := runner.Shell(
		ctx, t.ConfigFor(workorder.SecretForSetup), runner.ShellCommand{Name: name, Run: command, Log: workorder.LogsDir + "/" + name + ".log"},
	)
	if r.ExitCode > 0 && ctx.Err() == nil {
		return r.ExitCode, r.Tail, nil // the command's own failure, not a stop
	}
	return r.ExitCode, r.Tail, r.Err
}

// Continue turns the agent's next run into a continuation of an earlier attempt's work.
func (t *Task) Continue(c rootgit.CloneResult) {
	// The last attempt is this one, which has only begun.
	before := c.State.Attempts[:max(0, len(c.State.Attempts)-1)]
	t.cfg.SpentUSD = c.State.SpentUSD()
	h := runner.PastWork{
		Order: strings.Join(c.State.Added, "\n\n"), Attempts: before, Branch: c.State.TargetBranch, Base: c.Base, BaseSHA: c.BaseSHA,
		Head: c.Head, Commits: c.Commits, Restored: c.Restored, Changed: c.Changed, Unpacked: c.Unpacked, Elsewhere: c.Elsewhere, Now: time.Now(),
	}
	t.asked.Added = h.Order
	if review := c.State.Feedback(t.cfg.Order.Mode); review != nil {
		t.revise(review, h)
		return
	}
	t.cfg.Prompt = runner.Continuing(t.cfg.Order.Task, h)
}

// Agent runs the agent.
func (t *Task) Agent(ctx context.Context) boot.AgentEnd {
	end := t.run(ctx, t.ConfigFor(workorder.SecretForAgent))
	end.Usage = t.withSetup(end.Usage)
	return end
}

// Repair runs the agent once more on checks that failed.
func (t *Task) Repair(ctx context.Context, round int, checks []workorder.Validation, used workorder.Usage) boot.AgentEnd {
	t.cfg.Round = round // also of the validation after it
	cfg := t.ConfigFor(workorder.SecretForAgent)
	order := *cfg.Order
	asked := t.asked
	asked.Task = order.Task
	if all := order.MaxBudgetUSD; all != nil && used.CostUSD != nil {
		// Greater than zero: the agent's adapter takes a budget of zero for no limit.
		const least = 1e-6
		order.MaxBudgetUSD = new(max(least, *all-*used.CostUSD))
		cfg.SpentUSD += *used.CostUSD
	}
	cfg.Order, cfg.Prompt = &order, runner.Repairing(asked, round, order.Repair.MaxAttempts, checks)
	cfg.Emit = adding(used, cfg.Emit)
	return t.run(ctx, cfg)
}

// adding adds earlier usage to events, so that they report the whole attempt.
func adding(used workorder.Usage, emit func(workorder.Event)) func(workorder.Event) {
	return func(e workorder.Event) {
		if e.Type == workorder.EventAgentUsage && e.Usage != nil {
			all := used.Plus(*e.Usage)
			if e.Usage.Tokens() == 0 { // cost only: the tokens are unchanged
				all.InputTokens, all.OutputTokens, all.CacheReadTokens, all.CacheWriteTokens = 0, 0, 0, 0
			}
			e.Usage = &all
		}
		emit(e)
	}
}

func (t *Task) run(ctx context.Context, cfg runner.Config) boot.AgentEnd {
	cfg.Deadline, _ = ctx.Deadline()
	keep := t.giveMediaDir(&cfg)
	if d := cfg.Order.Dev; d != nil {
		cfg.Env = append(cfg.Env, browse.DevEnv(d, cfg.Workspace))
	}
	leave := t.publishShellEntry(&cfg)
	t.agent = runner.Agent(ctx, cfg)
	a := t.agent
	a.Warnings = append(a.Warnings, leave()...)
	files, warnings := keep()
	a.Evidence, a.Warnings = append(a.Evidence, files...), append(a.Warnings, warnings...)
	return boot.AgentEnd{
		Agent: a.Agent, Usage: a.Usage, Status: a.Status, Reasons: a.Reasons, ResumeAt: a.ResumeAt, Evidence: a.Evidence, Warnings: a.Warnings,
	}
}

// publishShellEntry publishes the entry for shells. leave withdraws it and ends them before the checks run.
func (t *Task) publishShellEntry(cfg *runner.Config) (leave func() []string) {
	if t.shellEntry == nil || cfg.User == nil {
		return func() []string { return nil }
	}
	a := usershell.Agent{Env: cfg.Env, Dir: cfg.Workspace}
	if cfg.User.Namespace != nil {
		a.Namespace = cfg.User.Namespace.Name()
	}
	before := proc.SnapshotProcesses(cfg.User.UID, nil)
	if err := t.shellEntry.Publish(a); err != nil {
		return func() []string { return []string{err.Error()} }
	}
	return func() (warnings []string) {
		if err := t.shellEntry.Withdraw(); err != nil {
			warnings = append(warnings, err.Error())
		}
		before.KillOthers()
		return warnings
	}
}

// giveMediaDir gives the agent its directory for pictures, and returns a function that copies them after its end.
func (t *Task) giveMediaDir(cfg *runner.Config) (keep func() ([]workorder.Evidence, []string)) {
	if t.media == nil {
		kept, err := newMediaDir(filepath.Join(filepath.Dir(cfg.OutDir), "media"), cfg.OutDir, cfg.User, cfg.Redact.String)
		if err != nil {
			return func() ([]workorder.Evidence, []string) { return nil, []string{err.Error()} }
		}
		t.media = kept
	}
	cfg.Env = append(cfg.Env, mediaVar+"="+t.media.path)
	return t.media.collect
}

// withSetup adds the model usage of setup to the agent's.
func (t *Task) withSetup(agent workorder.Usage) workorder.Usage {
	if t.cfg.Meter == nil {
		return agent
	}
	all, requests := t.cfg.Meter.Usage()
	if requests == 0 || all.InputTokens+all.OutputTokens <= agent.InputTokens+agent.OutputTokens {
		return agent
	}
	all.ReservedUSD = max(all.ReservedUSD, agent.ReservedUSD) // a call of the agent may still be open
	return all
}

// Validate runs the project's checks.
func (t *Task) Validate(ctx context.Context) []workorder.Validation {
	began := time.Now()
	checks := runner.Validate(ctx, t.ConfigFor(workorder.SecretForValidate))
	t.cfg.Took = time.Since(began)
	return checks
}

// Verdict returns the result of the run.
func (t *Task) Verdict(checks []workorder.Validation, commits int, cause error) workorder.Ending {
	t.mu.Lock()
	defer t.mu.Unlock()
	return runner.Verdict(runner.Facts{
		Agent: t.agent, Validation: checks, Found: t.cfg.Order.Found,
		HasRepo: t.cfg.Order.Repo != "", Commits: commits, Cause: cause, FailedServices: t.lost,
	})
}

// MakePlanDir prepares the directory of the plan and passes its path to the agent.
func (t *Task) MakePlanDir() error {
	file, err := makePlanDir(t.cfg.User)
	if err != nil {
		return err
	}
	t.Setenv(planVar, file)
	t.cfg.Prompt = runner.Planning(t.cfg.Order.Task, file)
	return nil
}

// Plan returns the agent's plan.
func (t *Task) Plan() (text, path string, err error) {
	return collectPlan(planDir, t.cfg.User.Owner(), t.agent.Agent.Final, t.cfg.OutDir, t.cfg.Redact.String)
}

// Setenv sets a variable for all later commands.
func (t *Task) Setenv(name, value string) {
	others := slices.DeleteFunc(slices.Clone(t.cfg.Env), func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	t.cfg.Env = append(others, name+"="+value)
}

// Package job holds everything that a run needs, and prints its plan as text.
package job

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Job is everything that a run needs.
type Job struct {
	Order workorder.Order
	Title string // the task in lists; empty means its text
	// Secrets reads the values of Order.SecretNames. It is called once, when everything else is ready for the box; nil if there
	// are no secrets.
	Secrets func(context.Context) (map[string]string, error)
	Git     *workorder.GitCredential
	RepoGit map[string]*workorder.GitCredential // of further repositories, by name
	// ForgeToken opens the pull request. It is empty if App opens it, or without a token or pull request.
	ForgeToken string
	// App renews credentials that expire; nil if there is none.
	App             *workorder.ForgeApp
	LocalRepo       string // the top directory of a repository on the host; empty for a remote one
	Owner           string
	OutDir          string // parent of the task's output directory; empty for the state directory
	Keep            bool
	Detach          bool
	Attempt         int               // the lowest number for this attempt; 0 if no previous attempt is known
	Request         taskstore.Request // saved for later attempts at the task
	Bundle, Archive string            // files of earlier attempts for the box
	Kept            map[string]string // the same of further repositories, by their paths in the box
	Notes           []string          // ordinary decisions made while the job was resolved
	Warnings        []string
}

// Check validates the order.
func (j *Job) Check() error {
	return exiterr.New(workorder.ExitInvalid, j.Order.Served().Check(), "")
}

// LocalRepos are the order's further repositories on this machine, by name.
func (j *Job) LocalRepos() map[string]string {
	local := map[string]string{}
	for _, r := range j.Order.Repos {
		if filepath.IsAbs(r.Repo) {
			local[r.Name] = r.Repo
		}
	}
	return local
}

// Serves reports whether this machine serves a repository to the box.
func (j *Job) Serves() bool { return j.LocalRepo != "" || len(j.LocalRepos()) > 0 }

// MemoryTenths is the default share of the machine's memory for a box: a program in the box that takes too much is killed
// before the machine's own programs are.
const MemoryTenths = 9

// Line is a line of a plan.
type Line struct{ Name, Text string }

// Access lists the agent's network, the servers behind the gateway, and the users of each secret, without values of secrets.
func Access(o *workorder.Order) []Line {
	lines := []Line{{"network", networkText(&o.Network)}}
	for _, r := range o.Gateway.Routes {
		text := fmt.Sprintf("%s at %s", r.API, withoutPassword(r.BaseURL))
		if len(r.Keys) > 0 {
			text += ", with " + strings.Join(r.Keys, " ")
		} else {
			text += ", without a key"
		}
		lines = append(lines, Line{"gateway", text})
	}
	if n := o.Gateway.RequestsPerMinute; n > 0 {
		lines = append(lines, Line{"gateway", fmt.Sprintf("at most %d requests a minute", n)})
	}
	for _, use := range workorder.SecretUses() {
		var names []string
		for _, n := range o.SecretNames {
			if o.SecretUse(n) == use {
				names = append(names, n)
			}
		}
		if slices.Sort(names); len(names) > 0 {
			lines = append(lines, Line{"secrets", usersOf(use) + ": " + strings.Join(names, " ")})
		}
	}
	return lines
}

func usersOf(u workorder.SecretUse) string {
	switch u {
	case workorder.SecretForCommands:
		return "setup, agent and validate"
	case workorder.SecretForGateway:
		return "the gateway only"
	}
	return string(u) + " only"
}

func networkText(n *workorder.NetworkPolicy) string {
	var s string
	switch n.Mode {
	case workorder.NetworkFull:
		s = "full: everything except metadata services of clouds"
	case workorder.NetworkNone:
		s = "none: only the sandbox's services, git and the model gateway"
	default:
		s = string(n.Mode) + ": " + cmp.Or(strings.Join(n.Allow, " "), "only the sandbox's services, git and the model gateway")
		if n.Learn {
			s += " (learning: other named hosts are reported, not refused)"
		}
	}
	if len(n.DNS) > 0 {
		s += "; names from " + strings.Join(n.DNS, " ")
	}
	return s
}

func withoutPassword(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "?" // orders were checked before
	}
	return u.Redacted()
}

// PlanText describes the steps of a job in their order. The same job gives the same text.
func PlanText(job *Job) string {
	o := &job.Order
	var b strings.Builder
	line := func(name, format string, a ...any) {
		fmt.Fprintf(&b, "  %-12s %s\n", name, fmt.Sprintf(format, a...))
	}
	fmt.Fprintf(&b, "plan for %s (%s)\n", o.TaskID, cmp.Or(o.Project, "no project"))
	line("check", "%s", checks(job))
	line("image", "%s", cmp.Or(o.Image, strings.Join(append([]string{"the default image"}, o.Parts...), " + ")+", built if missing"))
	line("sandbox", "%s", box(job))
	if job.LocalRepo != "" {
		line("serve", "%s to the sandbox, over authenticated HTTP, during the run", job.LocalRepo)
	}
	if o.Repo != "" {
		line("clone", "%s at %s", o.Repo, cmp.Or(o.Branch, "its default branch"))
	}
	for i := range o.Repos {
		if o.Rebase != nil {
			break // they stay as they are
		}
		r := &o.Repos[i]
		line("clone", "%s at %s, into %s", r.Repo, cmp.Or(r.Branch, "its default branch"), r.Dir())
	}
	if o.Rebase != nil {
		line("rebase", "%s", rebase(o))
	} else if o.Mode.Continues() {
		line("restore", "%s and the last checkpoint, once no other sandbox works on the task", o.TargetBranch)
	}
	if r := o.Review; r != nil {
		what := fmt.Sprintf("%d items of feedback", len(r.Items))
		if r.PR > 0 {
			what += fmt.Sprintf(" on #%d; its threads are answered after the push", r.PR)
		}
		line("address", "%s", what)
	}
	for i := range o.Services {
		line("service", "%s from %s", o.Services[i].Name, o.Services[i].Image)
	}
	if o.Supabase {
		line("service", "supabase")
	}
	if len(o.Env) > 0 {
		line("env", "%s", strings.Join(slices.Sorted(maps.Keys(o.Env)), " "))
	}
	for _, l := range Access(o) {
		line(l.Name, "%s", l.Text)
	}
	if o.TrustBranchConfig && o.Mode.Continues() {
		line("trust", "settings, hooks and MCP files of agents as they are on the branch")
	}
	if len(o.Packages) > 0 {
		line("packages", "%s", strings.Join(o.Packages, " "))
	}
	if len(o.Tools) > 0 {
		var tools []string
		for _, name := range slices.Sorted(maps.Keys(o.Tools)) {
			tools = append(tools, name+" "+o.Tools[name])
		}
		line("tools", "%s", strings.Join(tools, ", "))
	}
	for _, c := range o.Setup {
		line("setup", "%s", oneLine(c))
	}
	line("agent", "%s, at most %s%s", o.Harness.Name, o.Timeout(), budget(o))
	for _, v := range o.Validate {
		line("validate", "%s: %s", v.Name, oneLine(v.Run))
	}
	if o.Repo != "" {
		line("push", "%s", o.TargetBranch+map[bool]string{true: ", in each repository"}[len(o.Repos) > 0 && o.Rebase == nil])
	} else {
		line("push", "nothing: the task has no repository")
	}
	line("collect", "result, record, logs and evidence into %s", outText(job))
	if job.Keep {
		line("keep", "the stopped container")
	} else {
		line("remove", "the container and its volumes")
	}
	return b.String()
}

func checks(job *Job) string {
	switch {
	case job.Order.Repo == "":
		return "the engine answers"
	case job.LocalRepo != "":
		return "the engine answers and can reach this machine"
	}
	return "the engine answers; the remote answers, accepts the credential and has the branch"
}

func box(job *Job) string {
	s := job.Order.Isolation
	if job.Order.OCIRuntime != "" {
		s += ", OCI runtime " + job.Order.OCIRuntime
	}
	l := job.Order.Limits
	if l.MemoryBytes > 0 {
		s += fmt.Sprintf(", memory %d MiB", l.MemoryBytes>>20)
	} else {
		s += fmt.Sprintf(", %d/10 of the machine's memory", MemoryTenths)
	}
	if l.CPUs > 0 {
		s += fmt.Sprintf(", %g CPUs", l.CPUs)
	}
	if l.PIDs > 0 {
		s += fmt.Sprintf(", %d processes", l.PIDs)
	}
	if l.DiskBytes > 0 {
		s += fmt.Sprintf(", disk %d MiB", l.DiskBytes>>20)
	}
	return s + ", no bind mounts"
}

func budget(o *workorder.Order) string {
	if o.MaxBudgetUSD == nil {
		return ""
	}
	return fmt.Sprintf(" and %g USD", *o.MaxBudgetUSD)
}

func outText(job *Job) string {
	if job.OutDir == "" {
		return "the state directory"
	}
	return filepath.Join(job.OutDir, job.Order.TaskID)
}

// oneLine shortens a command to its first line.
func oneLine(s string) string {
	s = strings.TrimSpace(s)
	if first, _, more := strings.Cut(s, "\n"); more {
		return first + " …"
	}
	return s
}

func rebase(o *workorder.Order) string {
	s := "the commits of " + o.TargetBranch + " onto the newest of " + cmp.Or(o.Rebase.Onto, "the task's base branch") +
		", once no other sandbox works on the task; the agent runs only on conflicts, and nothing is pushed if a check gets worse"
	if o.Rebase.Foreign {
		s += "; commits of others are moved as well"
	}
	return s
}

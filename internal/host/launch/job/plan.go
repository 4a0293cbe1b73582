package job

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// PlanText describes the steps of a job in their order. It is pure: the same job gives
// the same text.
func PlanText(job *Job) string {
	o := &job.Order
	var b strings.Builder
	line := func(name, format string, a ...any) {
		fmt.Fprintf(&b, "  %-12s %s\n", name, fmt.Sprintf(format, a...))
	}
	fmt.Fprintf(&b, "plan for %s (%s)\n", o.TaskID, cmp.Or(o.Project, "no project"))
	line("check", "%s", checks(job))
	line("image", "%s", cmp.Or(job.Order.Image, "the default image, built when it is missing"))
	line("sandbox", "%s", box(job))
	if job.LocalRepo != "" {
		line("serve", "%s to the sandbox, over authenticated HTTP, for the length of the run", job.LocalRepo)
	}
	if o.Repo != "" {
		line("clone", "%s at %s", o.Repo, cmp.Or(o.Branch, "its default branch"))
	}
	if o.Rebase != nil {
		line("rebase", "%s", rebase(o))
	} else if o.Mode.GoesOn() {
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
	if o.TrustBranchConfig && o.Mode.GoesOn() {
		line("trust", "agents' settings, hooks and MCP files as the branch has them")
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
		line("push", "%s", o.TargetBranch)
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
	return "the engine answers; the remote answers, takes the credential and has the branch"
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
		return "the state folder"
	}
	return filepath.Join(job.OutDir, job.Order.TaskID)
}

// oneLine shows a command of possibly several lines in one.
func oneLine(s string) string {
	s = strings.TrimSpace(s)
	if first, _, more := strings.Cut(s, "\n"); more {
		return first + " …"
	}
	return s
}

// rebase describes which commits are moved, and onto what.
func rebase(o *workorder.Order) string {
	s := "the commits of " + o.TargetBranch + " onto the newest of " + cmp.Or(o.Rebase.Onto, "the task's base branch") +
		", once no other sandbox works on the task; the agent runs only where they conflict, and nothing is pushed that the checks find worse"
	if o.Rebase.Foreign {
		s += "; commits of others are moved as well"
	}
	return s
}

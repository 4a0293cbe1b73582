package cmdutil

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// CompleteTasks offers the tasks of the state directory with their titles, newest first or with those first
// that first selects.
func (f *Factory) CompleteTasks(several bool, first ...func(app.RecordedTask) bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const how = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if len(args) > 0 && !several {
			return nil, how
		}
		records := f.Works().RecordedTasks()
		for _, selects := range first {
			slices.SortStableFunc(records, func(r, s app.RecordedTask) int {
				switch {
				case selects(r) == selects(s):
					return 0
				case selects(r):
					return -1
				}
				return 1
			})
		}
		typed = strings.ToUpper(typed)
		var ids []cobra.Completion
		for _, r := range records {
			if slices.Contains(args, r.ID) || !strings.HasPrefix(r.ID, typed) && !strings.HasPrefix(r.ID, "T-"+typed) {
				continue
			}
			ids = append(ids, cobra.CompletionWithDesc(r.ID, Clip(text.Clean(r.Text))))
		}
		return ids, how
	}
}

// CompleteProjectFlag offers the names of projects for --project.
func (f *Factory) CompleteProjectFlag(cmd *cobra.Command) {
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("project", f.CompleteProjects(true))
}

// CompleteProjects offers the names of projects, also those of --projects-dir; a path is valid, too. Without several it offers one.
func (f *Factory) CompleteProjects(several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		opts, err := projects.SystemOptions()
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		if fl := cmd.Flags().Lookup("projects-dir"); fl != nil {
			if dir := cmp.Or(fl.Value.String(), f.Getenv(app.EnvName("projects-dir"))); dir != "" {
				opts.Dirs = append([]string{dir}, opts.Dirs...)
			}
		}
		return projects.Names(opts), cobra.ShellCompDirectiveDefault
	}
}

// CompleteSandboxes offers the names of standalone sandboxes.
func (f *Factory) CompleteSandboxes(several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), app.EngineWait)
		defer cancel()
		m, err := f.Manager(false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer m.Close()
		all, _ := m.List(ctx) // from the runtimes that answer
		var names []string
		for _, i := range all {
			if strings.HasPrefix(i.Name, typed) && !slices.Contains(args, i.Name) {
				names = append(names, i.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteSandboxThen completes the name of a sandbox, and then one of words.
func (f *Factory) CompleteSandboxThen(words ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		return f.CompleteSandboxes(false)(cmd, args, typed)
	}
}

// CompleteEither completes sandboxes and tasks.
func (f *Factory) CompleteEither(several bool, first ...func(app.RecordedTask) bool) cobra.CompletionFunc {
	tasks, sandboxes := f.CompleteTasks(several, first...), f.CompleteSandboxes(several)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveDefault
		}
		names, _ := sandboxes(cmd, args, typed)
		ids, how := tasks(cmd, args, typed)
		return append(names, ids...), how
	}
}

// CompleteBranches lists sandboxes with a branch.
func (f *Factory) CompleteBranches(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	all, err := f.BranchStore()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, _ := all.List(cmd.Context()) // as far as they can be read
	var names []string
	for _, i := range list {
		if strings.HasPrefix(i.Name, typed) {
			names = append(names, cobra.CompletionWithDesc(i.Name, i.Title))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteWork lists sandboxes with a branch, and tasks.
func (f *Factory) CompleteWork(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, _ := f.CompleteBranches(cmd, args, typed)
	ids, how := f.CompleteTasks(false)(cmd, args, typed)
	return append(names, ids...), how
}

// CompleteList completes the last of several values with commas between them.
func CompleteList(values ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var all []cobra.Completion
		for _, v := range values {
			if !slices.Contains(strings.Split(before, ","), v) {
				all = append(all, before+v)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// CompleteRunFlags offers the values that flags of a run can have.
func (f *Factory) CompleteRunFlags(cmd *cobra.Command) {
	var modes []string
	for _, m := range workorder.NetworkModes() {
		modes = append(modes, string(m))
	}
	for flag, values := range map[string][]string{
		"harness":   workorder.Harnesses(),
		"network":   modes,
		"isolation": {workorder.IsolationConfined, workorder.IsolationPrivileged},
	} {
		// It can only fail for a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.RegisterFlagCompletionFunc("command", cobra.NoFileCompletions)
	f.CompleteProjectFlag(cmd)
}

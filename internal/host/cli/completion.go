package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// completeTasks offers the tasks of the state folder with their titles, the newest first
// or in the order of before. It skips records that cannot be read.
func (a *App) completeTasks(several bool, before ...func(r, s *store.Record) bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const how = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		st, err := a.store()
		if err != nil || len(args) > 0 && !several {
			return nil, how
		}
		records, _ := st.List()
		for _, less := range before {
			slices.SortStableFunc(records, func(r, s *store.Record) int {
				switch {
				case less(r, s):
					return -1
				case less(s, r):
					return 1
				}
				return 0
			})
		}
		typed = strings.ToUpper(typed)
		var ids []cobra.Completion
		for _, r := range records {
			if slices.Contains(args, r.TaskID) || !strings.HasPrefix(r.TaskID, typed) && !strings.HasPrefix(r.TaskID, "T-"+typed) {
				continue
			}
			ids = append(ids, cobra.CompletionWithDesc(r.TaskID, clip(text.Clean(r.Task))))
		}
		return ids, how
	}
}

// completeFlags offers the values that flags of a run can have.
func (a *App) completeFlags(cmd *cobra.Command) {
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
	a.completeProjectFlag(cmd)
}

// completeProjectFlag offers the names of projects for --project.
func (a *App) completeProjectFlag(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("project", a.completeProjects(true))
}

// completeProjects offers the names of projects, also those of --projects-dir; a path is valid, too. Without several it offers one.
func (a *App) completeProjects(several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		opts, err := projects.SystemOptions()
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		if f := cmd.Flags().Lookup("projects-dir"); f != nil {
			if dir := cmp.Or(f.Value.String(), a.Getenv(app.EnvName(f.Name))); dir != "" {
				opts.Folders = append([]string{dir}, opts.Folders...)
			}
		}
		return projects.Names(opts), cobra.ShellCompDirectiveDefault
	}
}

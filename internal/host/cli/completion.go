package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// completeTasks offers the tasks of the state folder, the newest first or as before
// orders them, with what each was about. A record that cannot be read is not offered.
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
			ids = append(ids, cobra.CompletionWithDesc(r.TaskID, clip(render.Clean(r.Task))))
		}
		return ids, how
	}
}

// completeFlags offers the values that flags of a run can have.
func completeFlags(cmd *cobra.Command) {
	var modes []string
	for _, m := range workorder.NetworkModes() {
		modes = append(modes, string(m))
	}
	for flag, values := range map[string][]string{
		"harness":   workorder.Harnesses(),
		"network":   modes,
		"isolation": {workorder.IsolationConfined, workorder.IsolationPrivileged},
	} {
		// It fails only for a flag that is not there.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.RegisterFlagCompletionFunc("project", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		opts, err := projects.SystemOptions()
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return projects.Names(opts), cobra.ShellCompDirectiveDefault // a path is good as well
	})
}

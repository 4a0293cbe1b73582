package setupcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

const keysHelp = `
A key is named as in the file: image, env.NAME, services.redis.image,
lifecycle.setup, lifecycle.setup[0]. 'project schema --markdown' lists all.`

func newProjectGetCmd(f *cmdutil.Factory) *cobra.Command {
	project, asJSON := "", false
	cmd := &cobra.Command{
		Use: "get KEY", Short: "Print a value of a project file", ValidArgsFunction: completeKeys,
		Args: cmdutil.Args(1, 1, "one key", "`sandbox-agent project show` prints the whole file"),
		Long: "Prints the value of a key, or its default. A list has one item per line.\nExit code 2 means that there is neither.\n" + keysHelp,
		Example: `  sandbox-agent project get image
  sandbox-agent project get lifecycle.setup --json
  sandbox-agent project get env.NODE_ENV -p my-app`,
		RunE: func(_ *cobra.Command, args []string) error {
			value, text, err := f.Projects().Get(project, args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return f.JSON(value)
			}
			_, err = fmt.Fprint(f.Stdout, text)
			return err
		},
	}
	projectFlag(f, cmd, &project)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// projectFlag adds the flag for the file of a command on keys.
func projectFlag(f *cmdutil.Factory, cmd *cobra.Command, project *string) {
	cmd.Flags().StringVarP(project, "project", "p", "", "project name, or path of a project file (default: that of the current directory)")
	f.CompleteProjectFlag(cmd)
}

// completeKeys completes a key of project files.
func completeKeys(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return projects.Keys(typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// newProjectEditCmds makes the commands that change a value of a project file.
func newProjectEditCmds(f *cmdutil.Factory) (all []*cobra.Command) {
	for _, row := range []struct {
		change              yamlkeys.Change
		name, args          string
		short, long, sample string
		least               int
	}{
		{
			yamlkeys.ChangeSet, "set", "KEY VALUE...", "Set a value in a project file",
			"Sets a key. Several values are the items of a list, or NAME=VALUE of a mapping,\nand replace those there are.",
			`  sandbox-agent project set image debian:trixie
  sandbox-agent project set env.NODE_ENV test
  sandbox-agent project set services.redis.image redis:7-alpine
  sandbox-agent project set packages jq libpq-dev`, 2,
		},
		{
			yamlkeys.ChangeAdd, "add", "KEY VALUE...", "Add to a list or mapping of a project file",
			"Appends items to a list, or sets NAME=VALUE entries of a mapping.",
			`  sandbox-agent project add lifecycle.setup 'npm ci && npm run build'
  sandbox-agent project add env NODE_ENV=test CI=1
  sandbox-agent project add secrets API_KEY=env://API_KEY`, 2,
		},
		{
			yamlkeys.ChangeUnset, "unset", "KEY [VALUE]...", "Remove a value from a project file",
			"Removes a key, or the named items of a list or entries of a mapping.",
			`  sandbox-agent project unset services.redis
  sandbox-agent project unset packages jq
  sandbox-agent project unset lifecycle.setup[0]`, 1,
		},
	} {
		project, asJSON := "", false
		cmd := &cobra.Command{
			Use: row.name + " " + row.args, Short: row.short, Example: row.sample, ValidArgsFunction: completeKeys,
			Args: cmdutil.Args(row.least, cmdutil.Any, "a key"+strings.Repeat(" and a value", row.least-1),
				"see `sandbox-agent project "+row.name+" --help`"),
			Long: row.long + ` The rest of the file stays as it
is, with comments and order. A change that makes a mistake, as 'project
validate' finds them, is refused: exit code 6.
` + keysHelp,
			RunE: func(_ *cobra.Command, args []string) error {
				file, left, err := f.Projects().Edit(project, projects.Edit{Change: row.change, Key: args[0], Words: args[1:]})
				if err != nil {
					return refused(f, err)
				}
				if left > 0 {
					f.Warn(fmt.Sprintf("%s still has other mistakes: %d (see sandbox-agent project validate)", file, left))
				}
				return f.Done(asJSON, map[string]string{"file": file, "key": args[0]}, "changed %s", file)
			},
		}
		projectFlag(f, cmd, &project)
		cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
		all = append(all, cmd)
	}
	return all
}

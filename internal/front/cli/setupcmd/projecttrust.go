package setupcmd

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

type trustOptions struct{ list, revoke, json bool }

func newProjectTrustCmd(f *cmdutil.Factory) *cobra.Command {
	o := &trustOptions{}
	cmd := &cobra.Command{
		Use: "trust [FILE|NAME]", Short: "Trust a project file of a repository", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: f.CompleteProjects(false),
		Long: `A project file that comes with a repository is refused until you trust it, where
it asks for more than the repository's code may do in the sandbox: commands
(cmd://), files, logins or variables of this machine other than the keys of its
harness; another isolation, OCI runtime or image; memory and process limits above
the defaults; other model servers or prices; another repository; your credential
for a remote of which its repository has no commit; pull requests in another
repository; a server for SANDBOX_AGENT_GIT_TOKEN; or more network than --network
gives.

This command shows what the file asks for, and remembers in the state directory
that you trust this content at this path. When the file, or a script that its
cmd:// names, changes, you are asked again. A cmd:// runs in a directory that has
only these scripts: name other files that it needs, such as a Makefile. Files
outside of any repository that you name with --project, and projects in your own
directories, need no trust.

login://HARNESS instead of a file lets tasks without a key use the login of that
program on this machine, through the model gateway.`,
		Example: `  sandbox-agent project trust
  sandbox-agent project trust ./clone/.sandbox-agent.yaml
  sandbox-agent project trust login://claude-code
  sandbox-agent project trust --list
  sandbox-agent project trust --revoke ./clone/.sandbox-agent.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := strings.Join(args, "")
			switch {
			case o.list && (o.revoke || ref != ""):
				return app.Usagef("--list takes neither --revoke nor a file")
			case o.list:
				return o.doList(f)
			case o.revoke:
				return o.doRevoke(ref, f)
			case strings.HasPrefix(ref, app.LoginRef):
				return o.doLogin(ref, f)
			}
			return o.do(cmd.Context(), ref, f)
		},
	}
	cmd.Flags().BoolVar(&o.list, "list", false, "list trusted files")
	cmd.Flags().BoolVar(&o.revoke, "revoke", false, "stop trusting the file")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// doLogin trusts a login of this machine.
func (o *trustOptions) doLogin(ref string, f *cmdutil.Factory) error {
	t, reason, err := f.Projects().TrustLogin(ref)
	if err != nil {
		return err
	}
	return f.Done(o.json, t, "%s: %s\ntrusted: %s", t.Sum, reason, text.Clean(t.File))
}

func (o *trustOptions) do(ctx context.Context, ref string, f *cmdutil.Factory) error {
	t, err := f.Projects().Trust(ctx, ref)
	if err != nil {
		return err
	}
	if len(t.Permissions) > 0 && !o.json {
		fmt.Fprintln(f.Stdout, strings.Join(app.TrustLines(t.File, t.Permissions), "\n"))
	}
	return f.Done(o.json, t, "trusted as it is now: %s", text.Clean(t.File))
}

func (o *trustOptions) doRevoke(ref string, f *cmdutil.Factory) error {
	t, err := f.Projects().Revoke(ref)
	if err != nil {
		return err
	}
	return f.Done(o.json, t, "no longer trusted: %s", text.Clean(t.File))
}

func (o *trustOptions) doList(f *cmdutil.Factory) error {
	list, err := f.Projects().Trusted()
	if err != nil {
		return err
	}
	if o.json {
		return f.JSON(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(f.Stdout, "no project file is trusted")
		return nil
	}
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "FILE\tSINCE\tSTATE\tASKS FOR")
	for _, row := range list {
		var keys []string
		for _, k := range row.Permissions {
			keys = append(keys, k.Key)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", text.Clean(row.File), row.At.Local().Format(time.DateTime), row.State,
			text.Clean(strings.Join(keys, ", ")))
	}
	return w.Flush()
}

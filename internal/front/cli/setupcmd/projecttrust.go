package setupcmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/agentlogin"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
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
			case strings.HasPrefix(ref, inLogin):
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

// inLogin is how the reference of a login begins.
const inLogin = projects.SecretLogin + "://"

// doLogin says yes to a login of this machine.
func (o *trustOptions) doLogin(ref string, f *cmdutil.Factory) error {
	harness := strings.TrimPrefix(ref, inLogin)
	l, err := agentlogin.Any(f.Getenv, harness, time.Now())
	if err != nil {
		return exiterr.New(workorder.ExitInvalid, err, "logins that can be used: "+inLogin+strings.Join(projects.Logins(), ", "+inLogin))
	}
	st, err := f.Store()
	if err != nil {
		return err
	}
	if err := resolve.TrustLogin(st.Dir(), l); err != nil {
		return err
	}
	ask := resolve.LoginAsk(l)
	if o.json {
		return f.JSON(trustedFile{trust.NewEntry(l.File, l.Ref(), []trust.Permission{ask}, time.Now()), "trusted"})
	}
	fmt.Fprintf(f.Stdout, "%s: %s\ntrusted: %s\n", l.Ref(), ask.Reason, text.Clean(l.File))
	return nil
}

// trustedFile is a file with the user's decision.
type trustedFile struct {
	trust.Entry
	State string `json:"state"` // trusted, changed, gone, revoked
}

func (o *trustOptions) do(ctx context.Context, ref string, f *cmdutil.Factory) error {
	opts, err := projects.SystemOptions()
	if err != nil {
		return err
	}
	p, err := projects.Load(ref, opts)
	if err != nil {
		return err
	}
	file := p.Path()
	if file == "" {
		return app.Usagef("%s is shipped with this program: it needs no trust", p.File)
	}
	st, err := f.Store()
	if err != nil {
		return err
	}
	// All requests of the file, whatever flags a later command has.
	u := trust.UserOverrides{
		Own: resolve.OwnRepo(ctx, file), Gives: func(string) bool { return false }, Network: workorder.NetworkRestricted,
		Token: true, AnyRepo: true,
	}
	if repo := cmp.Or(p.Repo, localrepo.RepoRoot(p.Dir)); repo != "" && u.Own(repo) {
		u.Borrows = localrepo.AlternateDirs(ctx, cmp.Or(localrepo.RepoRoot(p.Dir), repo))
	}
	asks := trust.Permissions(p, u)
	sum, now := trust.Sum(p), time.Now()
	if err := trust.Open(st.Dir()).Trust(file, sum, asks, now); err != nil {
		return err
	}
	if o.json {
		return f.JSON(trustedFile{trust.NewEntry(file, sum, asks, now), "trusted"})
	}
	if len(asks) > 0 {
		fmt.Fprintln(f.Stdout, strings.Join(app.TrustLines(file, asks), "\n"))
	}
	fmt.Fprintf(f.Stdout, "trusted as it is now: %s\n", text.Clean(file))
	return nil
}

func (o *trustOptions) doRevoke(ref string, f *cmdutil.Factory) error {
	st, err := f.Store()
	if err != nil {
		return err
	}
	store := trust.Open(st.Dir())
	find := func() (string, error) { return projectFileOf(ref) }
	if harness, ok := strings.CutPrefix(ref, inLogin); ok {
		find = func() (string, error) { return agentlogin.File(f.Getenv, harness) }
	}
	file, err := find()
	if err != nil {
		return err
	}
	there, err := store.Revoke(file)
	if err != nil {
		return err
	}
	if !there {
		return exiterr.New(workorder.ExitNoProject, fmt.Errorf("%s is not trusted", file),
			"`sandbox-agent project trust --list` lists the files that are")
	}
	if o.json {
		return f.JSON(trustedFile{trust.Entry{File: file, Permissions: []trust.Permission{}}, "revoked"})
	}
	fmt.Fprintf(f.Stdout, "no longer trusted: %s\n", text.Clean(file))
	return nil
}

// projectFileOf is the file of a reference, which may be missing or broken by now.
func projectFileOf(ref string) (string, error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return "", err
	}
	if p, err := projects.Load(ref, opts); err == nil {
		return p.Path(), nil
	}
	if ref == "" {
		ref = projects.DefaultFile
	}
	if st, err := os.Stat(ref); err == nil && st.IsDir() {
		ref = filepath.Join(ref, projects.DefaultFile)
	}
	return filepath.Abs(ref)
}

func (o *trustOptions) doList(f *cmdutil.Factory) error {
	st, err := f.Store()
	if err != nil {
		return err
	}
	entries, err := trust.Open(st.Dir()).List()
	if err != nil {
		return err
	}
	opts, err := projects.SystemOptions()
	if err != nil {
		return err
	}
	list := []trustedFile{}
	for _, e := range entries {
		flags := trustedFile{e, "changed"}
		if _, err := os.Stat(e.File); err != nil {
			flags.State = "gone"
		} else if strings.HasPrefix(e.Sum, inLogin) && e.PathUnchanged() {
			flags.State = "trusted"
		} else if p, err := projects.Load(e.File, opts); err == nil && trust.Sum(p) == e.Sum && e.PathUnchanged() {
			flags.State = "trusted"
		}
		list = append(list, flags)
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

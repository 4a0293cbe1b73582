package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/agentlogin"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// settle chooses the run's secrets before it reads any value. One key of the harness is enough. Missing keys of another harness and
// missing optional secrets are omitted. A project without a key gets the environment's. Other missing secrets go into g.missing.
func (f *Resolver) settle(ctx context.Context, g *Resolved) error {
	p, getenv := g.Project, f.Credentials.Getenv
	if p.LacksKey() {
		taken, err := g.take(getenv)
		if g.missing = err; !taken && err == nil {
			if g.missing, err = f.takeLogin(ctx, g); err != nil {
				return err
			}
		}
	}
	var keys, out, idle, without []string
	var missing, noKey []error
	demanded := false
	for _, s := range p.Secrets {
		err := credentials.CheckAvailable(getenv, s)
		switch {
		case err == nil && p.IsKey(s):
			keys = append(keys, s.Name)
		case err == nil:
		case p.IsKey(s):
			out, noKey, demanded = append(out, s.Name), append(noKey, err), demanded || !s.Optional
		case p.IsIdle(s):
			out, idle = append(out, s.Name), append(idle, s.Name)
		case s.Optional:
			out, without = append(out, s.Name), append(without, s.Name)
		default:
			missing = append(missing, err)
		}
	}
	hint := credentials.SecretsHint
	if len(noKey) > 0 && len(keys) == 0 && (demanded || g.keyless(out)) {
		missing, hint = append(noKey, missing...), g.keyHint(getenv)
	} else {
		g.leaveOut(out, idle, without)
	}
	if len(keys) > 1 { // a command may print nothing; another key is then enough
		p.Secrets = slices.Clone(p.Secrets)
		for i := range p.Secrets {
			p.Secrets[i].Optional = p.Secrets[i].Optional || slices.Contains(keys, p.Secrets[i].Name)
		}
	}
	g.missing = errors.Join(g.missing, exiterr.New(workorder.ExitInvalid, errors.Join(missing...), hint))
	g.sayLogins(getenv, time.Now())
	return nil
}

// MissingSecrets returns the error of required secrets that are missing, or nil.
func (g *Resolved) MissingSecrets() error { return g.missing }

// keyless reports whether the harness cannot reach its models without these secrets.
func (g *Resolved) keyless(without []string) bool {
	p := *g.Project
	p.LeaveOut(without)
	return p.LacksKey()
}

// leaveOut omits missing secrets and notes it, except for further keys of the harness.
func (g *Resolved) leaveOut(out, idle, without []string) {
	g.Project.LeaveOut(out)
	if len(idle) > 0 {
		g.notes = append(g.notes, fmt.Sprintf("omitted: %s (missing, and %s does not need it)", strings.Join(idle, ", "),
			g.Project.Harness.Name))
	}
	if len(without) > 0 {
		g.notes = append(g.notes, fmt.Sprintf("omitted: %s (optional, and missing)", strings.Join(without, ", ")))
	}
}

// noKey is the error of a harness without a key.
func (g *Resolved) noKey(why, hint string) error {
	p := g.Project
	err := fmt.Errorf("the harness %s has no key: the project names none, and none of %s is set%s", p.Harness.Name,
		strings.Join(p.KeyNames(), ", "), why)
	return exiterr.New(workorder.ExitInvalid, err, "export one of them, or name its source: "+p.KeyHint()+hint)
}

// take uses a key of the environment if the project names none.
func (g *Resolved) take(getenv func(string) string) (bool, error) {
	p := g.Project
	names := p.KeyNames()
	i := slices.IndexFunc(names, func(n string) bool { return getenv(n) != "" })
	if i < 0 {
		return false, nil
	}
	api := workorder.ModelAPIOfKey(names[i])
	server := getenv(api.BaseURLVariable())
	if server != "" {
		if err := reachable(server); err != nil {
			return false, exiterr.New(workorder.ExitInvalid,
				fmt.Errorf("%s goes to the server that %s names: %w", names[i], api.BaseURLVariable(), err),
				fmt.Sprintf("name the server as the sandbox reaches it, and the key: gateway: {%s: {base_url: http://host.docker.internal:4000}} "+
					"and secrets: {%s: env://%s} in the project file", api, names[i], names[i]))
		}
	}
	p.TakeKey(names[i], projects.Ref{Scheme: projects.SecretEnv, Target: names[i]}, server)
	note := fmt.Sprintf("key: %s of the environment, because the project names none", names[i])
	if server != "" {
		note += ", for the server of " + api.BaseURLVariable()
	}
	g.notes = append(g.notes, note)
	return true, nil
}

// reachable returns an error if a sandbox cannot use a server that this machine uses.
func reachable(server string) error {
	if err := workorder.CheckBaseURL(server); err != nil {
		return err
	}
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
		return fmt.Errorf("in the sandbox, %s is the sandbox itself", u.Host)
	}
	return nil
}

// keyHint is the hint for a missing key. It mentions a key that is exported under another name.
func (g *Resolved) keyHint(getenv func(string) string) string {
	p := g.Project
	for _, name := range p.KeyNames() {
		if getenv(name) != "" {
			return fmt.Sprintf("%s is set and %s accepts it: add to the project file  secrets: {%s: env://%s}", name, p.Harness.Name, name, name)
		}
	}
	return fmt.Sprintf("%s needs one of %s: export one, and list it under `secrets:` in the project file", p.Harness.Name,
		strings.Join(p.KeyNames(), ", "))
}

// hasKey returns an error if the harness has keys and none was read.
func (g *Resolved) hasKey(getenv func(string) string, values map[string]string, absent map[string]error) error {
	var errs []error
	var out []string
	for _, s := range g.Project.Secrets {
		_, there := values[s.Name]
		switch {
		case !g.Project.IsKey(s):
		case there:
			return nil
		default:
			out, errs = append(out, s.Name), append(errs, cmp.Or(absent[s.Name], fmt.Errorf("secret %s is missing", s.Name)))
		}
	}
	if len(errs) == 0 || !g.keyless(out) {
		return nil
	}
	return exiterr.New(workorder.ExitInvalid, errors.Join(errs...), g.keyHint(getenv))
}

// takeLogin uses a login of this machine for a harness without a key, if the user allows it. lacks says why there is none.
func (f *Resolver) takeLogin(ctx context.Context, g *Resolved) (lacks, err error) {
	l, err := findLogin(f.Credentials.Getenv, g.Project, time.Now())
	switch {
	case errors.Is(err, agentlogin.ErrNoLogin) || l == nil && err == nil:
		return g.noKey("", ""), nil
	case err != nil:
		return g.noKey("; and "+err.Error(), ""), nil
	}
	api := workorder.ModelAPIOfKey(l.Name)
	if server := f.Credentials.Getenv(api.BaseURLVariable()); server != "" && server != api.DefaultBaseURL() {
		return g.noKey(fmt.Sprintf("; the login in %s is not sent to the server of %s", l.File, api.BaseURLVariable()), ""), nil
	}
	yes, err := f.mayLogin(ctx, g, l)
	if err != nil {
		return nil, err
	}
	if !yes {
		return g.noKey(fmt.Sprintf("; and the login in %s needs your consent", l.File),
			fmt.Sprintf("; or allow the login: `sandbox-agent project trust %s`, or  secrets: {%s: %s}  in the project file", l.Ref(), l.Name,
				l.Ref())), nil
	}
	g.Project.TakeKey(l.Name, projects.Ref{Scheme: projects.SecretLogin, Target: l.Harness}, "")
	return nil, nil
}

// findLogin returns the first login that the project's harness accepts, or nil.
func findLogin(getenv func(string) string, p *projects.Project, now time.Time) (l *agentlogin.Login, err error) {
	for _, name := range p.LoginNames() {
		if l, err = agentlogin.Read(getenv, p.Harness.Name, name, now); err == nil {
			return l, nil
		}
	}
	return nil, err
}

// mayLogin reports whether the user allows the login, and asks him if possible.
func (f *Resolver) mayLogin(ctx context.Context, g *Resolved, l *agentlogin.Login) (bool, error) {
	dir, err := f.StateDir()
	if err != nil {
		return false, err
	}
	store := trust.Open(dir)
	was, err := store.Lookup(l.File)
	if err != nil {
		return false, exiterr.New(workorder.ExitInvalid, err, "remove that file, and confirm again")
	}
	if was != nil && was.Sum == l.Ref() {
		return true, nil
	}
	if g.said.DryRun || f.ConfirmLogin == nil || f.askedLogin {
		return false, nil
	}
	f.askedLogin = true
	yes, err := f.ConfirmLogin(ctx, l)
	if err != nil || !yes {
		return false, err
	}
	return true, TrustLogin(dir, l)
}

// TrustLogin saves in a state directory that the user allows a login.
func TrustLogin(stateDir string, l *agentlogin.Login) error {
	return trust.Open(stateDir).Trust(l.File, l.Ref(), []trust.Permission{LoginAsk(l)}, time.Now())
}

// LoginAsk is the permission that a user gives with a login.
func LoginAsk(l *agentlogin.Login) trust.Permission {
	return trust.Permission{
		Key: projects.SecretLogin, Value: l.Ref(),
		Reason: fmt.Sprintf("tasks with %s call models with it: the gateway sends its token to %s, and the agent does not get it",
			l.Harness, workorder.ModelAPIOfKey(l.Name).DefaultBaseURL()),
	}
}

// sayLogins notes the logins in use, and warns of one that may expire during the run.
func (g *Resolved) sayLogins(getenv func(string) string, now time.Time) {
	for _, s := range g.Project.Secrets {
		i := slices.IndexFunc(s.From, func(from projects.Ref) bool {
			return credentials.CheckAvailable(getenv, projects.Secret{Name: s.Name, From: []projects.Ref{from}}) == nil
		})
		if i < 0 || s.From[i].Scheme != projects.SecretLogin {
			continue
		}
		// A login that has just disappeared is reported when it is read.
		if l, err := agentlogin.Read(getenv, s.From[i].Target, s.Name, now); err == nil {
			g.sayLogin(l, now)
		}
	}
}

func (g *Resolved) sayLogin(l *agentlogin.Login, now time.Time) {
	note := fmt.Sprintf("key: the login of %s in %s", l.Harness, l.File)
	if !l.Expires.IsZero() {
		note += ", until " + l.Expires.Local().Format(time.DateTime)
		limit := time.Duration(g.Project.TimeoutMinutes * float64(time.Minute))
		if left := l.Expires.Sub(now); left < limit {
			g.warns = append(g.warns, fmt.Sprintf("the login of %s expires in %s, and the run may take %s: run its program once to renew "+
				"it, or use a key that does not expire", l.Harness, left.Round(time.Minute), limit))
		}
	}
	g.notes = append(g.notes, note)
}

// secrets resolves the project's references. A repository's commands run in a directory with only the files that the user trusted.
func (g *Resolved) secrets(ctx context.Context, find *credentials.Finder) (map[string]string, error) {
	values, absent, err := g.values(ctx, find, g.Project.Secrets)
	if err != nil {
		return nil, err
	}
	return values, g.hasKey(find.Getenv, values, absent)
}

// SandboxSecrets returns the project's available secrets for a standalone box, and its repository's credential. The
// harness needs no key there. missing says which other secrets have no value.
func (g *Resolved) SandboxSecrets(ctx context.Context, find *credentials.Finder) (values map[string]string, git *workorder.GitCredential,
	missing []error, err error,
) {
	var there []projects.Secret
	for _, s := range g.Project.Secrets {
		lacks := credentials.CheckAvailable(find.Getenv, s)
		if lacks == nil {
			there = append(there, s)
		} else if !s.Optional && !g.Project.IsKey(s) {
			missing = append(missing, lacks)
		}
	}
	if values, _, err = g.values(ctx, find, there); err != nil {
		return nil, nil, nil, err
	}
	if g.Local == nil && g.Project.Repo != "" {
		git, err = find.Git(ctx, g.Project.Repo)
	}
	return values, git, missing, err
}

// AgentSecrets returns the secrets for agents alone. A missing one is an error unless the project can omit it.
func (g *Resolved) AgentSecrets(ctx context.Context, find *credentials.Finder) (map[string]string, error) {
	var own []projects.Secret
	for _, s := range g.Project.Secrets {
		if s.Use == workorder.SecretForAgent {
			own = append(own, s)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	values, _, err := g.values(ctx, find, own)
	return values, err
}

func (g *Resolved) values(ctx context.Context, find *credentials.Finder, refs []projects.Secret) (values map[string]string,
	absent map[string]error, err error,
) {
	dir := ""
	if g.trustedSum != "" && slices.ContainsFunc(refs, func(s projects.Secret) bool { return s.Has(projects.SecretCmd) }) {
		staged, remove, err := trust.Stage(g.asRead, g.trustedSum)
		if err != nil {
			return nil, nil, exiterr.New(workorder.ExitInvalid, err, "review it, then start again")
		}
		defer remove()
		dir = staged
	}
	return find.Secrets(ctx, refs, dir)
}

// FindSecrets prepares the job's credentials. It reports missing secrets now, but reads the secrets only right before the box starts.
func (g *Resolved) FindSecrets(ctx context.Context, find *credentials.Finder) error {
	if g.missing != nil {
		return g.missing
	}
	return g.FindCredentials(ctx, find)
}

// FindCredentials is FindSecrets without the report of missing secrets, for a command that only reads the remote.
func (g *Resolved) FindCredentials(ctx context.Context, find *credentials.Finder) (err error) {
	g.Job.Secrets = func(ctx context.Context) (map[string]string, error) { return g.secrets(ctx, find) }
	o, job := &g.Job.Order, g.Job
	if g.Local == nil && o.Repo != "" {
		if job.Git, err = find.Git(ctx, o.CloneURL); err != nil {
			return err
		}
	}
	renews := job.Git != nil && job.Git.Renew
	job.RepoGit = map[string]*workorder.GitCredential{}
	for i := range o.Repos {
		r := &o.Repos[i]
		if r.CloneURL == "" {
			continue
		}
		cred, err := find.Git(ctx, r.CloneURL)
		if err != nil {
			return named(r, err)
		}
		if cred != nil {
			job.RepoGit[r.Name], renews = cred, renews || cred.Renew
		}
	}
	var token credentials.ForgeToken
	if o.Repo != "" && o.PR != nil {
		if token, err = find.Forge(ctx, o.Repo, o.PR); err != nil {
			return err
		}
	}
	job.ForgeToken = token.Token
	if token.Renew {
		job.ForgeToken = "" // the box makes its own when needed
	}
	if token.Renew || renews {
		job.App, err = find.App()
	}
	return err
}

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

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// settle decides which secrets the run goes with, before any value is read: of the harness's keys any one is enough, those of another
// harness and optional ones are left out where they are not there, and a project without a key has the one of the environment. Missing
// ones are kept in g.lacks.
func (f *Resolver) settle(ctx context.Context, g *Resolved) error {
	p, getenv := g.Project, f.Credentials.Getenv
	if p.LacksKey() {
		taken, err := g.take(getenv)
		if g.lacks = err; !taken && err == nil {
			if g.lacks, err = f.takeLogin(ctx, g); err != nil {
				return err
			}
		}
	}
	var keys, out, idle, without []string
	var missing, noKey []error
	demanded := false
	for _, s := range p.Secrets {
		err := credentials.Absent(getenv, s)
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
	if len(keys) > 1 { // a command may print nothing: then another one is enough
		p.Secrets = slices.Clone(p.Secrets)
		for i := range p.Secrets {
			p.Secrets[i].Optional = p.Secrets[i].Optional || slices.Contains(keys, p.Secrets[i].Name)
		}
	}
	g.lacks = errors.Join(g.lacks, fault.New(workorder.ExitInvalid, errors.Join(missing...), hint))
	g.sayLogins(getenv, time.Now())
	return nil
}

// Lacks says which secrets are not there and have to be; nil where a run would go on.
func (g *Resolved) Lacks() error { return g.lacks }

// keyless reports whether the harness has no way to its models without these secrets.
func (g *Resolved) keyless(without []string) bool {
	p := *g.Project
	p.LeaveOut(without)
	return p.LacksKey()
}

// leaveOut goes without secrets that are not there, and says so once. Other keys than the one that is used are nothing to talk about.
func (g *Resolved) leaveOut(out, idle, without []string) {
	g.Project.LeaveOut(out)
	if len(idle) > 0 {
		g.notes = append(g.notes, fmt.Sprintf("left out: %s (%s does not need it, and it is not there)", strings.Join(idle, ", "), g.Project.Harness.Name))
	}
	if len(without) > 0 {
		g.notes = append(g.notes, fmt.Sprintf("left out: %s (optional, and not there)", strings.Join(without, ", ")))
	}
}

// noKey is the error of a harness without any key.
func (g *Resolved) noKey(why, hint string) error {
	p := g.Project
	err := fmt.Errorf("the harness %s has no key: the project names none, and none is set of %s%s", p.Harness.Name, strings.Join(p.KeyNames(), ", "), why)
	return fault.New(workorder.ExitInvalid, err, "export one of them; or name where it is kept: "+p.KeyHint()+hint)
}

// take gives a harness for which the project has no key the one of the environment, if there is one.
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
			return false, fault.New(workorder.ExitInvalid, fmt.Errorf("%s goes to the server that %s names: %w", names[i], api.BaseURLVariable(), err),
				fmt.Sprintf("name the server as the sandbox reaches it, and the key: gateway: {%s: {base_url: http://host.docker.internal:4000}} and secrets: {%s: env://%s} in the project file", api, names[i], names[i]))
		}
	}
	p.TakeKey(names[i], projects.Ref{Scheme: projects.SecretEnv, Target: names[i]}, server)
	note := fmt.Sprintf("key: %s of the environment, as the project names none", names[i])
	if server != "" {
		note += ", for the server of " + api.BaseURLVariable()
	}
	g.notes = append(g.notes, note)
	return true, nil
}

// reachable says why a sandbox cannot use a server that this machine uses.
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
		return fmt.Errorf("%s is the sandbox itself in the sandbox", u.Host)
	}
	return nil
}

// keyHint is what to do about a harness of whose keys none is there: one that is exported under another name is named.
func (g *Resolved) keyHint(getenv func(string) string) string {
	p := g.Project
	for _, name := range p.KeyNames() {
		if getenv(name) != "" {
			return fmt.Sprintf("%s is set: %s takes it as well, add to the project file  secrets: {%s: env://%s}", name, p.Harness.Name, name, name)
		}
	}
	return fmt.Sprintf("%s needs one of %s: export one, and name it under `secrets:` in the project file", p.Harness.Name, strings.Join(p.KeyNames(), ", "))
}

// hasKey makes sure that of the harness's keys one was read, where it had any.
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
			out, errs = append(out, s.Name), append(errs, cmp.Or(absent[s.Name], fmt.Errorf("secret %s is not there", s.Name)))
		}
	}
	if len(errs) == 0 || !g.keyless(out) {
		return nil
	}
	return fault.New(workorder.ExitInvalid, errors.Join(errs...), g.keyHint(getenv))
}

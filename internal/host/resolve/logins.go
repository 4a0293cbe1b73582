package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/login"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// takeLogin gives a harness without a key the login of its program on this machine, where the user said yes to that. lacks says why it
// has none.
func (f *Resolver) takeLogin(ctx context.Context, g *Resolved) (lacks, err error) {
	l, err := findLogin(f.Credentials.Getenv, g.Project, time.Now())
	switch {
	case errors.Is(err, login.ErrNone) || l == nil && err == nil:
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
		return g.noKey(fmt.Sprintf("; and the login in %s is used only with your yes", l.File),
			fmt.Sprintf("; or say yes to the login: `sandbox-agent project trust %s`, or  secrets: {%s: %s}  in the project file", l.Ref(), l.Name, l.Ref())), nil
	}
	g.Project.TakeKey(l.Name, projects.Ref{Scheme: projects.SecretLogin, Target: l.Harness}, "")
	return nil, nil
}

// findLogin is the first login that the project's harness takes; nil where there can be none.
func findLogin(getenv func(string) string, p *projects.Project, now time.Time) (l *login.Login, err error) {
	for _, name := range p.LoginNames() {
		if l, err = login.Read(getenv, p.Harness.Name, name, now); err == nil {
			return l, nil
		}
	}
	return nil, err
}

// mayLogin reports whether the user said yes to the login, and asks where that can be.
func (f *Resolver) mayLogin(ctx context.Context, g *Resolved, l *login.Login) (bool, error) {
	dir, err := f.StateDir()
	if err != nil {
		return false, err
	}
	book := trust.Open(dir)
	was, err := book.Look(l.File)
	if err != nil {
		return false, fault.New(workorder.ExitInvalid, err, "remove that file, and confirm again")
	}
	if was != nil && was.Sum == l.Ref() {
		return true, nil
	}
	if g.said.Rehearse || f.ConfirmLogin == nil || f.askedLogin {
		return false, nil
	}
	f.askedLogin = true // once
	yes, err := f.ConfirmLogin(ctx, l)
	if err != nil || !yes {
		return false, err
	}
	return true, TrustLogin(dir, l)
}

// TrustLogin remembers in a state folder that the user said yes to a login.
func TrustLogin(stateDir string, l *login.Login) error {
	return trust.Open(stateDir).Trust(l.File, l.Ref(), []trust.Ask{LoginAsk(l)}, time.Now())
}

// LoginAsk is what a yes to a login means.
func LoginAsk(l *login.Login) trust.Ask {
	return trust.Ask{Key: projects.SecretLogin, Value: l.Ref(), Why: fmt.Sprintf("tasks of %s ask models with it: its token goes to %s through the gateway, and not to the agent",
		l.Harness, workorder.ModelAPIOfKey(l.Name).DefaultBaseURL())}
}

// sayLogins says which logins are used, and warns of one that ends before the run may.
func (g *Resolved) sayLogins(getenv func(string) string, now time.Time) {
	for _, s := range g.Project.Secrets {
		i := slices.IndexFunc(s.From, func(from projects.Ref) bool {
			return credentials.Absent(getenv, projects.Secret{Name: s.Name, From: []projects.Ref{from}}) == nil
		})
		if i < 0 || s.From[i].Scheme != projects.SecretLogin {
			continue
		}
		if l, err := login.Read(getenv, s.From[i].Target, s.Name, now); err == nil { // else it went in this moment, and is said when it is read
			g.sayLogin(l, now)
		}
	}
}

func (g *Resolved) sayLogin(l *login.Login, now time.Time) {
	note := fmt.Sprintf("key: the login of %s in %s", l.Harness, l.File)
	if !l.Expires.IsZero() {
		note += ", until " + l.Expires.Local().Format(time.DateTime)
		limit := time.Duration(g.Project.TimeoutMinutes * float64(time.Minute))
		if left := l.Expires.Sub(now); left < limit {
			g.warns = append(g.warns, fmt.Sprintf("the login of %s expires in %s, and the run may take %s: start its program once, which renews it, or use a key that lasts", l.Harness, left.Round(time.Minute), limit))
		}
	}
	g.notes = append(g.notes, note)
}

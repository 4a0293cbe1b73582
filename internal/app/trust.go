package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/agentlogin"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// LoginRef is how the reference of a login begins.
const LoginRef = projects.SecretLogin + "://"

// TrustedFile is a project file or a login with the user's decision.
type TrustedFile struct {
	trust.Entry
	State string `json:"state"` // trusted, changed, gone, revoked
}

// trusts opens the user's decisions.
func (p Projects) trusts() (*trust.Store, error) {
	dir, err := p.StateDir()
	if err != nil {
		return nil, err
	}
	return trust.Open(dir), nil
}

// TrustLogin trusts a login of this machine. reason says what that means.
func (p Projects) TrustLogin(ref string) (t TrustedFile, reason string, err error) {
	l, err := agentlogin.Any(p.Getenv, strings.TrimPrefix(ref, LoginRef), time.Now())
	if err != nil {
		return t, "", exiterr.New(workorder.ExitInvalid, err, "logins that can be used: "+LoginRef+strings.Join(projects.Logins(), ", "+LoginRef))
	}
	dir, err := p.StateDir()
	if err != nil {
		return t, "", err
	}
	if err := resolve.TrustLogin(dir, l); err != nil {
		return t, "", err
	}
	ask := resolve.LoginAsk(l)
	return TrustedFile{trust.NewEntry(l.File, l.Ref(), []trust.Permission{ask}, time.Now()), "trusted"}, ask.Reason, nil
}

// Trust trusts the present content of a project file. The result lists all requests of the file, whatever flags a later command has.
func (p Projects) Trust(ctx context.Context, ref string) (t TrustedFile, err error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return t, err
	}
	found, err := projects.Load(ref, opts)
	if err != nil {
		return t, err
	}
	file := found.Path()
	if file == "" {
		return t, Usagef("%s is shipped with this program: it needs no trust", found.File)
	}
	st, err := p.trusts()
	if err != nil {
		return t, err
	}
	u := trust.UserOverrides{
		Own: resolve.OwnRepo(ctx, file), Gives: func(string) bool { return false }, Network: workorder.NetworkRestricted,
		Token: true, AnyRepo: true,
	}
	if repo := cmp.Or(found.Repo, localrepo.RepoRoot(found.Dir)); repo != "" && u.Own(repo) {
		u.Borrows = localrepo.AlternateDirs(ctx, cmp.Or(localrepo.RepoRoot(found.Dir), repo))
	}
	asks, sum, now := trust.Permissions(found, u), trust.Sum(found), time.Now()
	return TrustedFile{trust.NewEntry(file, sum, asks, now), "trusted"}, st.Trust(file, sum, asks, now)
}

// Revoke stops trusting a project file, which may be missing or broken by now, or a login.
func (p Projects) Revoke(ref string) (t TrustedFile, err error) {
	st, err := p.trusts()
	if err != nil {
		return t, err
	}
	var file string
	if harness, ok := strings.CutPrefix(ref, LoginRef); ok {
		file, err = agentlogin.File(p.Getenv, harness)
	} else {
		file, err = projectFileOf(ref)
	}
	if err != nil {
		return t, err
	}
	switch there, err := st.Revoke(file); {
	case err != nil:
		return t, err
	case !there:
		return t, exiterr.New(workorder.ExitNoProject, fmt.Errorf("%s is not trusted", file),
			"`sandbox-agent project trust --list` lists the files that are")
	}
	return TrustedFile{trust.Entry{File: file, Permissions: []trust.Permission{}}, "revoked"}, nil
}

func projectFileOf(ref string) (string, error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return "", err
	}
	if p, err := projects.Load(ref, opts); err == nil {
		return p.Path(), nil
	}
	ref = cmp.Or(ref, projects.DefaultFile)
	if st, err := os.Stat(ref); err == nil && st.IsDir() {
		ref = filepath.Join(ref, projects.DefaultFile)
	}
	return filepath.Abs(ref)
}

// Trusted lists the files and logins that the user has trusted.
func (p Projects) Trusted() ([]TrustedFile, error) {
	st, err := p.trusts()
	if err != nil {
		return nil, err
	}
	entries, err := st.List()
	if err != nil {
		return nil, err
	}
	opts, err := projects.SystemOptions()
	if err != nil {
		return nil, err
	}
	list := []TrustedFile{}
	for _, e := range entries {
		t := TrustedFile{e, "changed"}
		if _, err := os.Stat(e.File); err != nil {
			t.State = "gone"
		} else if strings.HasPrefix(e.Sum, LoginRef) && e.PathUnchanged() {
			t.State = "trusted"
		} else if p, err := projects.Load(e.File, opts); err == nil && trust.Sum(p) == e.Sum && e.PathUnchanged() {
			t.State = "trusted"
		}
		list = append(list, t)
	}
	return list, nil
}

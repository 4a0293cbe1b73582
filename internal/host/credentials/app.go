package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/setup"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The variables of a GitHub App. The key is given as PEM, or as the path of its file.
const (
	appID           = "SANDBOX_AGENT_GITHUB_APP_ID"
	appInstallation = "SANDBOX_AGENT_GITHUB_APP_INSTALLATION"
	appKey          = "SANDBOX_AGENT_GITHUB_APP_KEY"
	appKeyFile      = "SANDBOX_AGENT_GITHUB_APP_KEY_FILE"
)

// maxAppKey bounds the key file, in bytes: an RSA key of 16384 bits has about 13 kB.
const maxAppKey = 64 << 10

// usesApp reports whether an App opens the remote: one is configured, no token of higher priority is set, and the remote
// is on GitHub.
func (f *Finder) usesApp(remote string) bool {
	if f.Getenv(appID) == "" || f.Getenv(GitToken) != "" {
		return false
	}
	if u, err := url.Parse(remote); err == nil && u.Scheme == "http" && readable(u) {
		return false
	}
	repo, ok := setup.Parse(remote)
	if !ok || repo.Assumed && !f.isGitHub(repo.Host) {
		return false
	}
	return !f.isGitHub(repo.Host) || f.Getenv("GH_TOKEN") == "" && f.Getenv("GITHUB_TOKEN") == ""
}

// App reads the App that the environment configures; nil if there is none.
func (f *Finder) App() (*workorder.ForgeApp, error) {
	app := &workorder.ForgeApp{ID: strings.TrimSpace(f.Getenv(appID)), PrivateKey: f.Getenv(appKey)}
	if app.ID == "" {
		return nil, nil
	}
	var errs []error
	if v := strings.TrimSpace(f.Getenv(appInstallation)); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			errs = append(errs, fmt.Errorf("%s=%q is no installation's number", appInstallation, v))
		}
		app.Installation = n
	}
	file := f.Getenv(appKeyFile)
	switch {
	case app.PrivateKey != "" && file != "":
		errs = append(errs, fmt.Errorf("both %s and %s are set: keep one", appKey, appKeyFile))
	case app.PrivateKey == "" && file == "":
		errs = append(errs, fmt.Errorf("%s is set, and neither %s nor %s", appID, appKey, appKeyFile))
	case file != "":
		st, err := os.Stat(file)
		if err == nil && (!st.Mode().IsRegular() || st.Size() > maxAppKey) {
			err = errors.New("it is no key file")
		}
		var b []byte
		if err == nil {
			b, err = os.ReadFile(file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read the private key of the GitHub App from %s: %w", file, err))
		}
		app.PrivateKey = string(b)
	}
	if len(errs) > 0 {
		return nil, fault.New(workorder.ExitGit, errors.Join(errs...), "docs/pull-requests.md tells how a GitHub App is named")
	}
	return app, nil
}

// appCredential is an installation token for git over HTTP, which the box renews.
func (f *Finder) appCredential(ctx context.Context, remote string) (*workorder.GitCredential, error) {
	app, err := f.App()
	if err != nil {
		return nil, err
	}
	conf := forge.Config{Remote: remote, App: app}
	if repo, ok := setup.Parse(remote); ok && repo.Assumed {
		u, err := url.Parse(remote)
		if err != nil {
			return nil, fmt.Errorf("read the address of the remote: %w", err)
		}
		conf.APIURL = u.Scheme + "://" + u.Host // the user named this host as a GitHub, by GH_HOST
	}
	client, err := setup.New(conf)
	if err == nil {
		var t string
		if t, err = client.Token(ctx); err == nil {
			cred := token("", t)
			cred.Renew = true
			return cred, nil
		}
	}
	if fe, ok := errors.AsType[*forge.Error](err); ok {
		return nil, fault.New(workorder.ExitGit, fmt.Errorf("%s: %s", fe.Doing, fe.Said), fe.Next)
	}
	return nil, fault.New(workorder.ExitGit, fmt.Errorf("use the GitHub App: %w", err), "check "+appID+" and its key")
}

package resolve

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A GitHub App's token lives an hour: the box gets the App, also where the repository is a path and only pr names the forge.
func TestAppForThePullRequestOfAPath(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(forgetest.New(forgetest.Options{Owner: "o", Name: "app", AppID: "123", AppKey: &key.PublicKey}))
	t.Cleanup(srv.Close)
	vars := map[string]string{
		"GH_HOST": strings.TrimPrefix(srv.URL, "http://"), "SANDBOX_AGENT_GITHUB_APP_ID": "123",
		"SANDBOX_AGENT_GITHUB_APP_KEY": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	}
	for _, repo := range []string{t.TempDir(), srv.URL + "/o/app.git"} {
		order := workorder.Order{Repo: repo, CloneURL: repo, PR: &workorder.PullRequest{APIURL: srv.URL + "/api/v3", Repository: "o/app"}}
		r := &Resolved{Project: &projects.Project{}, Job: &job.Job{Order: order}}
		if err := r.FindSecrets(t.Context(), credentials.New(func(k string) string { return vars[k] })); err != nil {
			t.Fatal(err)
		}
		if r.Job.App == nil || r.Job.App.ID != "123" || r.Job.ForgeToken != "" {
			t.Errorf("%s: App %+v, and a token for an hour: %q", repo, r.Job.App, r.Job.ForgeToken)
		}
	}
}

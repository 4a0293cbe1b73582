package resolve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/agentlogin"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// machine is one with a login of Claude Code, and a person at it who may be asked.
type machine struct {
	t           *testing.T
	vars        map[string]string
	state, file string
	yaml        string
	asked       int
	says        bool
	nobody      bool // nobody can be asked
	rehearse    bool
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	home := t.TempDir()
	m := &machine{t: t, vars: map[string]string{"HOME": home}, state: t.TempDir(), file: filepath.Join(home, ".claude", ".credentials.json")}
	m.expires(24 * time.Hour)
	return m
}

func (m *machine) expires(in time.Duration) {
	m.t.Helper()
	text := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"cnry-token","expiresAt":%d}}`, time.Now().Add(in).UnixMilli())
	if err := errors.Join(os.MkdirAll(filepath.Dir(m.file), 0o700), os.WriteFile(m.file, []byte(text), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

// run resolves a run, and returns its secrets as the box would get them.
func (m *machine) run() (g *Resolved, values map[string]string, err error) {
	m.t.Helper()
	file := filepath.Join(m.t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte("name: x\n"+m.yaml+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
	find := credentials.New(func(k string) string { return m.vars[k] })
	r := &Resolver{Credentials: find, StateDir: func() (string, error) { return m.state, nil }}
	if !m.nobody {
		r.ConfirmLogin = func(_ context.Context, _ *agentlogin.Login) (bool, error) {
			m.asked++
			return m.says, nil
		}
	}
	for range 2 { // as a command does that needs the project before
		if g, err = r.Find(m.t.Context(), &Flags{Project: file, DryRun: m.rehearse}); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := g.Order(projects.OrderInput{Task: "t"}); err != nil {
		m.t.Fatal(err)
	}
	if err := g.FindSecrets(m.t.Context(), find); err != nil {
		return g, nil, err
	}
	values, err = g.Job.Secrets(m.t.Context())
	return g, values, err
}

// wants checks that a run has the login, or is refused.
func (m *machine) wants(has bool, asked int) *Resolved {
	m.t.Helper()
	g, values, err := m.run()
	if has != (err == nil) || has && values["CLAUDE_CODE_OAUTH_TOKEN"] != "cnry-token" || m.asked != asked {
		m.t.Errorf("secrets %v, asked %d times, want %d: %v", values, m.asked, asked, err)
	}
	if !has && (exiterr.Code(err) != workorder.ExitInvalid || strings.Contains(err.Error()+exiterr.Hint(err), "cnry")) {
		m.t.Errorf("%v", err)
	}
	if has && g.Job.Order.SecretUse("CLAUDE_CODE_OAUTH_TOKEN") != workorder.SecretForGateway {
		m.t.Error("the agent gets the login")
	}
	return g
}

// TestLoginIsAskedFor: a login is used with a yes, which is asked for once, and of nobody who is not there.
func TestLoginIsAskedFor(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.wants(false, 1)
	m.wants(false, 2) // a no is for this command
	m.nobody = true
	if g := m.wants(false, 2); !strings.Contains(exiterr.Hint(g.MissingSecrets()), "login://claude-code") {
		t.Errorf("the hint names no other way: %s", exiterr.Hint(g.MissingSecrets()))
	}
	m.nobody, m.rehearse, m.says = false, true, true
	m.wants(false, 2) // a rehearsal asks nobody
	m.rehearse = false
	m.wants(true, 3)
	m.nobody, m.says = true, false
	if g := m.wants(true, 3); len(g.Job.Notes) != 1 || len(g.Job.Warnings) != 0 || !strings.Contains(g.Job.Notes[0], m.file) {
		t.Errorf("notes %q, warnings %q", g.Job.Notes, g.Job.Warnings)
	}
	// The yes is for this file.
	m.vars["CLAUDE_CONFIG_DIR"] = filepath.Join(m.vars["HOME"], "other")
	m.file = filepath.Join(m.vars["CLAUDE_CONFIG_DIR"], ".credentials.json")
	m.expires(time.Hour)
	m.wants(false, 3)
}

// TestLoginByName: a project of the user's that names the login needs no yes.
func TestLoginByName(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.nobody, m.yaml = true, "secrets: {CLAUDE_CODE_OAUTH_TOKEN: login://claude-code}"
	m.wants(true, 0)
	m.yaml = "secrets: {CLAUDE_CODE_OAUTH_TOKEN: {any_of: [env://TOKEN, login://claude-code]}}"
	m.wants(true, 0)
	m.vars["TOKEN"] = "t"
	if g, values, err := m.run(); err != nil || values["CLAUDE_CODE_OAUTH_TOKEN"] != "t" || len(g.Job.Notes) != 0 {
		t.Errorf("%v, notes %q, %v", values, g.Job.Notes, err)
	}
	delete(m.vars, "TOKEN")
	m.expires(-time.Minute)
	if g := m.wants(false, 0); !strings.Contains(g.MissingSecrets().Error(), "expired at") {
		t.Error(g.MissingSecrets())
	}
}

// TestLoginEnds: a login that has expired is not used, and one that does before the run may is warned of.
func TestLoginEnds(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.says = true
	m.wants(true, 1)
	m.expires(-time.Minute)
	if g := m.wants(false, 1); !strings.Contains(g.MissingSecrets().Error(), "expired at") {
		t.Error(g.MissingSecrets())
	}
	m.expires(10 * time.Minute)
	if g := m.wants(true, 1); len(g.Job.Warnings) != 1 {
		t.Errorf("warnings %q", g.Job.Warnings)
	}
	m.yaml = "timeout_minutes: 5"
	if g := m.wants(true, 1); len(g.Job.Warnings) != 0 {
		t.Errorf("warnings %q", g.Job.Warnings)
	}
}

// TestLoginStaysWithItsServer: a login goes to the provider's own server, and an exported key before it.
func TestLoginStaysWithItsServer(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.says = true
	m.vars["ANTHROPIC_BASE_URL"] = "http://litellm.example"
	m.wants(false, 0)
	delete(m.vars, "ANTHROPIC_BASE_URL")
	m.yaml = "harness: codex"
	m.wants(false, 0)
	m.yaml = ""
	m.vars["ANTHROPIC_API_KEY"] = "k"
	if _, values, err := m.run(); err != nil || len(values) != 1 || values["ANTHROPIC_API_KEY"] != "k" || m.asked != 0 {
		t.Errorf("%v, asked %d times, %v", values, m.asked, err)
	}
}

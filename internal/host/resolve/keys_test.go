package resolve

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// keysOf resolves a project file with these variables, and returns the secrets that its run goes with.
func keysOf(t *testing.T, yaml string, flags, vars map[string]string) (*Resolved, []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte("name: x\n"+yaml+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	r := &Resolver{Credentials: credentials.New(func(k string) string { return vars[k] }), StateDir: func() (string, error) { return state, nil }}
	g, err := r.Find(t.Context(), &Flags{Project: file, Values: flags, Sources: map[string]string{"harness": "--harness"}})
	if err != nil {
		t.Fatalf("%s: %v", yaml, err)
	}
	if err := g.Order(projects.OrderInput{Task: "t"}); err != nil {
		t.Fatalf("%s: %v", yaml, err)
	}
	names := g.Job.Order.SecretNames
	for _, route := range g.Job.Order.Gateway.Routes {
		for _, k := range route.Keys {
			if !slices.Contains(names, k) {
				t.Errorf("%s: the gateway wants %s", yaml, k)
			}
		}
	}
	return g, names
}

// TestKeysOfTheHarness: no key is demanded that the chosen harness does not need, any one of those that it takes is enough, and one
// of the environment is taken where the project names none.
func TestKeysOfTheHarness(t *testing.T) {
	t.Parallel()
	const api, auth, oauth, gpt = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY"
	const both = "secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY, CLAUDE_CODE_OAUTH_TOKEN: env://CLAUDE_CODE_OAUTH_TOKEN}"
	for _, c := range []struct {
		yaml, harness string
		set           string // variables that are set
		want          string // secrets of the order
		lacks, hint   string // parts of the refusal
	}{
		{both, "", oauth, oauth, "", ""},
		{both, "", api, api, "", ""},
		{both, "", api + " " + oauth, api + " " + oauth, "", ""},
		{both, "", "", "", api, auth},
		{both, "", auth, "", oauth, auth},
		{"secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}", "", oauth, "", "environment variable " + api + " is not set", oauth},
		{"secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY, OPENAI_API_KEY: env://OPENAI_API_KEY}", "", api, api, "", ""},
		{"secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY, OPENAI_API_KEY: env://OPENAI_API_KEY}", "codex", gpt, gpt, "", ""},
		{"secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}", "codex", gpt, gpt, "", ""},
		{"secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}", "codex", api, api, "the harness codex has no key", gpt},
		{"secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY, OPENAI_API_KEY: env://OPENAI_API_KEY}", "opencode", gpt, gpt, "", ""},
		{"harness: {name: opencode, model: anthropic/m}\nsecrets: {OPENAI_API_KEY: env://OPENAI_API_KEY}", "", oauth, oauth, "", ""},
		{"secrets: {OPENAI_API_KEY: {from: env://OPENAI_API_KEY, for: validate}}", "", api, "", "environment variable " + gpt, "secrets"},
		{"harness: {name: command, command: x}\nsecrets: {OPENAI_API_KEY: env://OPENAI_API_KEY}", "", "", "", "environment variable " + gpt, ""},
		{"", "", oauth, oauth, "", ""},
		{"", "", auth + " " + oauth, auth, "", ""},
		{"", "", gpt, "", "the harness claude-code has no key", api},
		{"harness: codex", "", "CODEX_API_KEY", "CODEX_API_KEY", "", ""},
		{"secrets: {S: {from: env://S, optional: true}}", "", api, api, "", ""},
		{"secrets: {S: {any_of: [env://S, env://T]}}", "", api + " T", api + " S", "", ""},
		{"secrets: {S: {any_of: [env://S, env://T]}}", "", api, "", "environment variable T is not set", "optional: true"},
		{"secrets: {S: env://S}", "", "", "", "environment variable S is not set", api},
		{"secrets: {ANTHROPIC_API_KEY: {from: env://ANTHROPIC_API_KEY, optional: true}}", "", oauth, "", api, oauth},
		{"secrets: {ANTHROPIC_API_KEY: {from: env://ANTHROPIC_API_KEY, optional: true}}\ngateway: {anthropic: {base_url: 'http://x'}}", "", "", "", "", ""},
		{"secrets: {ANTHROPIC_API_KEY: {from: env://A, for: agent}, CLAUDE_CODE_OAUTH_TOKEN: {from: env://B, for: agent}}", "", "B", oauth, "", ""},
	} {
		vars, flags := map[string]string{}, map[string]string{}
		for name := range strings.FieldsSeq(c.set) {
			vars[name] = "value of " + name
		}
		if c.harness != "" {
			flags["harness"] = c.harness
		}
		g, names := keysOf(t, c.yaml, flags, vars)
		err := g.FindSecrets(t.Context(), credentials.New(func(k string) string { return vars[k] }))
		if c.lacks != "" {
			if exiterr.Code(err) != workorder.ExitInvalid || !strings.Contains(err.Error(), c.lacks) || !strings.Contains(exiterr.Hint(err), c.hint) {
				t.Errorf("%s with %q: %v\nhint: %s", c.yaml, c.set, err, exiterr.Hint(err))
			}
			continue
		}
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("%s with %q: %q, want %q, %v", c.yaml, c.set, got, c.want, err)
		}
	}
}

// TestKeyOfAnotherServer: the key of the environment goes where the environment says, and not to a server that only this machine has.
func TestKeyOfAnotherServer(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"ANTHROPIC_AUTH_TOKEN": "v", "ANTHROPIC_BASE_URL": "http://litellm.example:4000"}
	g, _ := keysOf(t, "", nil, vars)
	if routes := g.Job.Order.Gateway.Routes; len(routes) != 1 || routes[0].BaseURL != vars["ANTHROPIC_BASE_URL"] || g.MissingSecrets() != nil || len(g.Job.Notes) != 1 {
		t.Errorf("%+v, %v, notes %q", routes, g.MissingSecrets(), g.Job.Notes)
	}
	for _, here := range []string{"http://localhost:4000", "http://127.0.0.1:4000", "http://[::1]:4000"} {
		vars["ANTHROPIC_BASE_URL"] = here
		if g, _ := keysOf(t, "", nil, vars); g.MissingSecrets() == nil || len(g.Job.Order.SecretNames) > 0 {
			t.Errorf("%s: %v", here, g.MissingSecrets())
		}
	}
}

// TestKeyOfACommand: a command that prints nothing is no key, and another one is enough then.
func TestKeyOfACommand(t *testing.T) {
	t.Parallel()
	read := func(yaml string, vars map[string]string) (map[string]string, error) {
		g, _ := keysOf(t, yaml, nil, vars)
		if err := g.FindSecrets(t.Context(), credentials.New(func(k string) string { return vars[k] })); err != nil {
			t.Fatal(err)
		}
		return g.Job.Secrets(t.Context())
	}
	const yaml = "secrets: {ANTHROPIC_API_KEY: 'cmd://true', CLAUDE_CODE_OAUTH_TOKEN: env://T}"
	if v, err := read(yaml, map[string]string{"T": "t"}); err != nil || len(v) != 1 || v["CLAUDE_CODE_OAUTH_TOKEN"] != "t" {
		t.Errorf("%v, %v", v, err)
	}
	for _, yaml := range []string{yaml, "secrets: {ANTHROPIC_API_KEY: {from: 'cmd://true', optional: true}}"} {
		if v, err := read(yaml, nil); exiterr.Code(err) != workorder.ExitInvalid {
			t.Errorf("%s: %v, %v", yaml, v, err)
		}
	}
}

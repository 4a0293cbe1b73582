package projects_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func parse(t *testing.T, content string) *projects.Project {
	t.Helper()
	p, err := projects.Parse("/src/x.yaml", []byte("name: x\n"+content), projects.LoadOptions{Dir: "/cwd"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRoutes: which keys and servers make a route of the gateway, and what they leave to the agent.
func TestRoutes(t *testing.T) {
	t.Parallel()
	anthropic := func(url string, keys ...string) workorder.ModelRoute {
		return workorder.ModelRoute{API: workorder.APIAnthropic, BaseURL: url, Keys: keys}
	}
	openai := func(url string, keys ...string) workorder.ModelRoute {
		return workorder.ModelRoute{API: workorder.APIOpenAI, BaseURL: url, Keys: keys}
	}
	const claude, gpt = "https://api.anthropic.com", "https://api.openai.com"
	for name, c := range map[string]struct {
		yaml   string
		routes []workorder.ModelRoute
		uses   map[string]workorder.SecretUse
	}{
		"nothing":       {"", nil, nil},
		"other secrets": {"secrets: {A: env://A}", nil, nil},
		"a key": {
			"secrets: {ANTHROPIC_API_KEY: env://A}",
			[]workorder.ModelRoute{anthropic(claude, "ANTHROPIC_API_KEY")},
			map[string]workorder.SecretUse{"ANTHROPIC_API_KEY": "gateway"},
		},
		"all keys": {
			"secrets: {OPENAI_API_KEY: env://A, CODEX_API_KEY: env://A, CLAUDE_CODE_OAUTH_TOKEN: env://A}",
			[]workorder.ModelRoute{anthropic(claude, "CLAUDE_CODE_OAUTH_TOKEN"), openai(gpt, "CODEX_API_KEY", "OPENAI_API_KEY")},
			map[string]workorder.SecretUse{"OPENAI_API_KEY": "gateway", "CODEX_API_KEY": "gateway", "CLAUDE_CODE_OAUTH_TOKEN": "gateway"},
		},
		"the agent's own key": {
			"secrets: {ANTHROPIC_API_KEY: {from: env://A, for: agent}}", nil, map[string]workorder.SecretUse{"ANTHROPIC_API_KEY": "agent"},
		},
		"the agent's own key at a server of env": {
			"secrets: {OPENAI_API_KEY: {from: env://A, for: commands}}\nenv: {OPENAI_BASE_URL: 'http://x'}", nil, nil,
		},
		"a key in env": {"env: {OPENAI_API_KEY: dummy, OPENAI_BASE_URL: 'http://x'}", nil, nil},
		"a server of env": {
			"env: {ANTHROPIC_BASE_URL: 'http://127.0.0.1:8377'}\nsecrets: {ANTHROPIC_API_KEY: env://A}",
			[]workorder.ModelRoute{anthropic("http://127.0.0.1:8377", "ANTHROPIC_API_KEY")},
			map[string]workorder.SecretUse{"ANTHROPIC_API_KEY": "gateway"},
		},
		"a local model in env": {
			"lifecycle: {env: {OPENAI_BASE_URL: 'http://ollama:11434/v1'}}",
			[]workorder.ModelRoute{openai("http://ollama:11434/v1")},
			nil,
		},
		"a local model": {
			"gateway: {openai: {base_url: 'http://ollama:11434'}}",
			[]workorder.ModelRoute{openai("http://ollama:11434")},
			nil,
		},
		"gateway before env": {
			"gateway: {openai: {base_url: 'http://a'}}\nenv: {OPENAI_BASE_URL: 'http://b'}",
			[]workorder.ModelRoute{openai("http://a")},
			nil,
		},
		"an empty api": {"gateway: {openai: {}}", nil, nil},
		"a key by another name": {
			"gateway: {anthropic: {keys: [K, OPENAI_API_KEY]}}\nsecrets: {K: {from: env://K, for: gateway}, OPENAI_API_KEY: env://O}",
			[]workorder.ModelRoute{anthropic(claude, "K", "OPENAI_API_KEY")},
			map[string]workorder.SecretUse{"K": "gateway", "OPENAI_API_KEY": "gateway"},
		},
		"one key for both": {
			"gateway: {anthropic: {keys: [K]}, openai: {keys: [K]}}\nsecrets: {K: env://K}",
			[]workorder.ModelRoute{anthropic(claude, "K"), openai(gpt, "K")},
			map[string]workorder.SecretUse{"K": "gateway"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, c.yaml).Order(projects.OrderInput{Task: "t"})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.routes, o.Gateway.Routes); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.uses, o.SecretUses); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestNetworkOverride: a flag changes the mode and adds rules, and takes nothing else away.
func TestNetworkOverride(t *testing.T) {
	t.Parallel()
	const file = "network: {mode: restricted, allow: [a.example], learn: true, dns: [192.0.2.1]}"
	for name, c := range map[string]struct {
		yaml  string
		flags [][2]string
		want  workorder.NetworkPolicy
	}{
		"none": {file, [][2]string{{"network", "none"}}, workorder.NetworkPolicy{Mode: "none", DNS: []string{"192.0.2.1"}}},
		"the same mode": {file, [][2]string{{"network", "restricted"}}, workorder.NetworkPolicy{
			Mode:  "restricted",
			Allow: []string{"a.example"}, Learn: true, DNS: []string{"192.0.2.1"},
		}},
		"more rules": {
			file,
			[][2]string{{projects.KeyAllow, "B.example, a.example,c.example:22"}},
			workorder.NetworkPolicy{
				Mode: "restricted", Allow: []string{"a.example", "b.example", "c.example:22"}, Learn: true,
				DNS: []string{"192.0.2.1"},
			},
		},
		"rules of a new": {
			"",
			[][2]string{{"network", "restricted"}, {projects.KeyAllow, "*.b.example"}},
			workorder.NetworkPolicy{Mode: "restricted", Allow: []string{"*.b.example"}},
		},
		"rules of short": {
			"network: restricted",
			[][2]string{{projects.KeyAllow, "bücher.example"}},
			workorder.NetworkPolicy{Mode: "restricted", Allow: []string{"xn--bcher-kva.example"}},
		},
		"and back": {"", [][2]string{{"network", "none"}, {"network", "full"}}, workorder.NetworkPolicy{Mode: "full"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse(t, c.yaml)
			for _, f := range c.flags {
				if err := p.Override(f[0], f[1], "--flag"); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(c.want, p.Network); d != "" {
				t.Error(d)
			}
			if again := parse(t, strings.TrimPrefix(p.Show(true), "name: x")); !cmp.Equal(again.Network, c.want) {
				t.Errorf("shown as\n%s", p.Show(true))
			}
		})
	}
	for _, mode := range []string{"full", "none"} {
		if err := parse(t, "network: "+mode).Override(projects.KeyAllow, "a.example", "--allow"); err == nil ||
			!strings.Contains(err.Error(), mode) {
			t.Errorf("rules for %s: %v", mode, err)
		}
	}
}

// TestAdvice: what is no mistake and may surprise.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"secrets: {ANTHROPIC_API_KEY: env://A}":        "",
		"env: {CLAUDE_CODE_USE_BEDROCK: '1'}":          "",
		"gateway: {anthropic: {base_url: 'http://x'}}": "",
		"env: {ANTHROPIC_BASE_URL: 'http://x'}":        "",
		"":                                             "",
		"secrets: {ANTHROPIC_API_KEY: {from: env://A, for: agent}}":                       "secrets.ANTHROPIC_API_KEY",
		"secrets: {ANTHROPIC_API_KEY: env://A}\nnetwork: restricted":                      "restricted",
		"secrets: {ANTHROPIC_API_KEY: env://A}\nnetwork: none":                            "",
		"secrets: {ANTHROPIC_API_KEY: env://A}\nnetwork: {mode: restricted, learn: true}": "",
	} {
		var got []string
		for _, a := range parse(t, "validate: {test: 'true'}\n"+yaml).Advice() {
			got = append(got, a.Message)
			if a.Hint == "" {
				t.Errorf("%q: no hint", yaml)
			}
		}
		if all := strings.Join(got, "\n"); len(got) > 1 || want == "" && all != "" || !strings.Contains(all, want) {
			t.Errorf("%q: %q, want %q", yaml, all, want)
		}
	}
}

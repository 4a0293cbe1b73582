package projects_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLoadFindsByNameAndPath(t *testing.T) {
	t.Parallel()
	dir, extra, user := t.TempDir(), t.TempDir(), t.TempDir()
	opts := projects.LoadOptions{Dir: dir, Dirs: []string{"", extra}, UserDir: user}
	write(t, dir+"/.sandbox-agent/a.yaml", "name: a1")
	write(t, dir+"/projects/a.yaml", "name: a2")
	write(t, dir+"/projects/b.yml", "name: b2")
	write(t, extra+"/b.yaml", "name: b3")
	write(t, extra+"/c.yaml", "name: c3")
	write(t, user+"/c.yaml", "name: c4")
	write(t, user+"/d.yaml", "name: d4\nrepo: ../x")
	write(t, dir+"/.sandbox-agent.yaml", "name: here\nrepo: .")
	write(t, user+"/minimal.yaml", "name: mine")
	for ref, want := range map[string]string{
		"a": "a1", "b": "b2", "c": "c3", "d": "d4", "here": "here", "": "here", ".": "here", "./": "here",
		"projects/a.yaml": "a2", "./projects/b.yml": "b2", ".sandbox-agent.yaml": "here",
		extra + "/c.yaml": "c3", "minimal": "mine", "my-saas-app": "my-saas-app",
	} {
		p, err := projects.Load(ref, opts)
		if err != nil {
			t.Errorf("Load(%q): %v", ref, err)
		} else if p.Name != want {
			t.Errorf("Load(%q) is %s (%s), want %s", ref, p.Name, p.File, want)
		}
	}
	if p, err := projects.Load("d", opts); err != nil || p.Repo != filepath.Join(filepath.Dir(user), "x") {
		t.Errorf("repo %q is not relative to its file: %v", p.Repo, err)
	}
	if p, err := projects.Load("here", opts); err != nil || p.Repo != dir {
		t.Errorf("repo %q is not the folder of its file: %v", p.Repo, err)
	}
}

func TestLoadNotFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/projects/backend.yaml", "name: x")
	opts := projects.LoadOptions{Dir: dir, UserDir: dir + "/none"}
	_, err := projects.Load("bakcend", opts)
	missing, ok := errors.AsType[*projects.NotFoundError](err)
	if !ok || missing.ExitCode() != workorder.ExitNoProject {
		t.Fatalf("got %v", err)
	}
	if missing.Near[0] != "backend" || !strings.Contains(err.Error(), "projects/bakcend.yaml") || !strings.Contains(err.Error(),
		dir+"/none/bakcend.yaml") {
		t.Errorf("message does not help: %v", err)
	}
	for _, ref := range []string{"", "x.yaml", "a/b", "/nowhere.yaml", ".", "-x", "a\x00b"} {
		if _, err := projects.Load(ref, opts); err == nil {
			t.Errorf("Load(%q) found something", ref)
		}
	}
}

func TestLoadLargeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/x.yaml", "name: x\n#"+strings.Repeat("x", 1<<20))
	_, err := projects.Load("x.yaml", projects.LoadOptions{Dir: dir})
	if list, ok := projects.Problems(err); !ok || list[0].Code != "too-large" {
		t.Errorf("got %v", err)
	}
}

func load(t *testing.T, file string) *projects.Project {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := projects.Parse("/src/"+filepath.Base(file), content, projects.LoadOptions{Dir: "/cwd", Home: "/home/me"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEverything compares the whole project, and the whole order.
func TestEverything(t *testing.T) {
	t.Parallel()
	p := load(t, "testdata/ok/everything.yaml")
	budget := 0.25
	want := workorder.Order{
		Version: workorder.Version, TaskID: "T-A1B2C3D4", Mode: workorder.ModeCreate, Project: "everything", Task: "-x\n$(id) é",
		Repo: "git@github.com:myorg/app.git", CloneURL: "git@github.com:myorg/app.git", Branch: "release/1.10",
		TargetBranch: "agent/T-A1B2C3D4-x-id",
		BoxSpec: workorder.BoxSpec{Image: "my/image:1", Parts: []string{"browser", "claude-code", "codex"}, Isolation: "privileged", OCIRuntime: "sysbox-runc", Services: []workorder.Service{
			{
				Name: "postgres", Image: "postgres:16", Command: []string{"postgres", "-c", "fsync=off"},
				Env:   map[string]string{"POSTGRES_PASSWORD": "postgres", "LANG": "C.UTF-8", "LEVEL": "0777"},
				Ports: []string{"5432", "8125/udp"},
				Healthcheck: &workorder.Healthcheck{
					Test: []string{"pg_isready -U postgres"}, IntervalSeconds: 1, TimeoutSeconds: 2.5, Retries: 20,
				},
				Volumes: []string{"data:/var/lib/postgresql/data"}, StartTimeoutSeconds: 120,
			},
			{
				Name: "redis", Image: "registry.example:5000/lib/redis:7@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
				Command: []string{"sh", "-c", `redis-server --save ""`}, Healthcheck: &workorder.Healthcheck{Test: []string{"redis-cli", "ping"}},
				StartTimeoutSeconds: 60,
			},
		}, Env: map[string]string{
			"VERSION": "1.10", "ANSWER": "yes", "MODE": "0777", "DAY": "2026-01-02", "EMPTY": "", "NOTHING": "~", "HEX": "0x1F", "QUOTED": "a: b",
		}, SecretNames: []string{
			"ANTHROPIC_API_KEY", "DEPLOY_KEY", "LICENCE", "LITELLM_KEY", "OTHER", "SENTRY_TOKEN",
			"STRIPE_KEY",
		}, SecretUses: map[string]workorder.SecretUse{
			"ANTHROPIC_API_KEY": "gateway", "LITELLM_KEY": "gateway",
			"DEPLOY_KEY": "validate",
		}, Packages: []string{"libpq-dev", "jq=1.7-1"}, Tools: map[string]string{
			"node": "22",
			"go":   ">=1.26 <1.28", "python": "3.10",
		}, Setup: []string{"npm ci", "set -e\nnpm run migrate\n"}, Network: workorder.NetworkPolicy{
			Mode: workorder.NetworkRestricted, Learn: true, DNS: []string{"192.0.2.53", "2001:db8::53"},
			Allow: []string{"example.com", "*.xn--bcher-kva.example", "192.0.2.7:5432", "[2001:db8::1]:8443"},
		}, Gateway: workorder.Gateway{
			RequestsPerMinute: 60, ProviderTools: new(false),
			Prices: map[string]workorder.ModelPrice{"local/llama-3.3": {Output: 0.5, CacheWrite: 1.25}},
			Routes: []workorder.ModelRoute{
				{API: workorder.APIAnthropic, BaseURL: "http://litellm.example:4000", Keys: []string{"ANTHROPIC_API_KEY", "LITELLM_KEY"}},
				{API: workorder.APIOpenAI, BaseURL: "https://models.example/v1"},
			},
		}, Limits: workorder.Limits{MemoryBytes: 3 << 29, CPUs: 1.5, PIDs: 4096, DiskBytes: 20 << 30}},
		Repos: []workorder.OrderRepo{
			{Name: "api", Repo: "https://github.com/myorg/my-api", CloneURL: "https://github.com/myorg/my-api"},
			{Name: "web", Repo: "/web", Branch: "develop", Repository: "myorg/my-web"},
		},
		Validate: []workorder.Check{{Name: "zeta", Run: "make z"}, {Name: "alpha", Run: "make a"}, {Name: "mid", Run: "make m"}},
		Dev: &workorder.Dev{
			Command: "npm run dev", Port: 3000, ReadyPath: "/health", Pages: []string{"/", "/login?next=/"},
			StartTimeoutSeconds: 120,
		},
		Repair: workorder.Repair{MaxAttempts: 2},
		Harness: workorder.Harness{
			Name: "command", Command: []string{"sh", "-c", `./agent.sh "$1"`}, Model: "some/model-1", Args: []string{"--verbose", ""},
			Version: "1.20",
		},
		MaxBudgetUSD: &budget, TimeoutMinutes: 0.5,
		PR: &workorder.PullRequest{
			Labels: []string{"agent"}, Draft: true, Reviewers: []string{"octocat", "myorg/team"}, Base: "main",
			APIURL: "https://ghe.example.com/api/v3", Repository: "myorg/my-saas-app",
		},

		TrustBranchConfig: true,
		NoProof:           true,
		Strict:            new(true),

		PushIntervalSeconds: 120, CheckpointIntervalSeconds: 30, HangTimeoutSeconds: 1200, AttemptID: "0123456789abcdef",
		PushSecrets: workorder.PushSecretsAllow,
		Author:      workorder.Identity{Name: "Build Bot", Email: "bot@example.com"},
		CoAuthor:    &workorder.Identity{Name: "sandbox-agent (command)", Email: "sandbox-agent@localhost"},
	}
	got, err := p.Order(projects.OrderInput{TaskID: "T-A1B2C3D4", AttemptID: "0123456789abcdef", Task: "-x\n$(id) é"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	agents := []projects.Agent{
		{Name: "short", Harness: workorder.Harness{Name: "codex"}},
		{Name: "mine", Harness: workorder.Harness{Name: "command", Command: []string{"my-agent", "--now"}}},
		{Name: "other", Harness: workorder.Harness{Name: "claude-code", Model: "m", Args: []string{"--verbose"}, Version: "1.2.3"}},
	}
	if d := cmp.Diff(agents, p.Agents); d != "" || p.Description != "what it is for" || len(p.Init) != 1 || p.Briefing != (projects.Briefing{Text: "more to know"}) {
		t.Errorf("%s%+v", d, p)
	}
	secrets := []projects.Secret{
		{Name: "STRIPE_KEY", From: []projects.Ref{{Scheme: "env", Target: "STRIPE_TEST_KEY"}}, Use: workorder.SecretForCommands},
		{Name: "LICENCE", From: []projects.Ref{{Scheme: "file", Target: "/src/licence.txt"}}, Use: workorder.SecretForCommands},
		{Name: "OTHER", From: []projects.Ref{{Scheme: "cmd", Target: "pass show other"}}, Use: workorder.SecretForCommands},
		{Name: "ANTHROPIC_API_KEY", From: []projects.Ref{{Scheme: "env", Target: "THE_KEY"}}, Use: workorder.SecretForGateway},
		{Name: "LITELLM_KEY", From: []projects.Ref{{Scheme: "env", Target: "LITELLM_KEY"}}, Use: workorder.SecretForGateway},
		{
			Name: "SENTRY_TOKEN", From: []projects.Ref{{Scheme: "env", Target: "SENTRY"}, {Scheme: "file", Target: "/home/me/.sentry"}},
			Optional: true, Use: workorder.SecretForCommands,
		},
		{Name: "DEPLOY_KEY", From: []projects.Ref{{Scheme: "file", Target: "/home/me/deploy.key"}}, Use: workorder.SecretForValidate},
	}
	if d := cmp.Diff(secrets, p.Secrets); d != "" {
		t.Error(d)
	}
	if p.Isolation != "privileged" || p.OCIRuntime != "sysbox-runc" || p.Image != "my/image:1" || p.Transport() != projects.TransportSSH {
		t.Errorf("launcher's fields: %q %q %q %q", p.Isolation, p.OCIRuntime, p.Image, p.Transport())
	}
}

// TestSeed: the seed's file means the same with either indentation.
func TestSeed(t *testing.T) {
	t.Parallel()
	in := projects.OrderInput{TaskID: "T-A1B2C3D4", AttemptID: "0123456789abcdef", Task: "Add pagination to the users API endpoint"}
	nested, err := load(t, "testdata/ok/seed-nested.yaml").Order(in)
	if err != nil {
		t.Fatal(err)
	}
	flat, err := load(t, "testdata/ok/seed-flat.yaml").Order(in)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(nested, flat); d != "" {
		t.Error(d)
	}
	if flat.TimeoutMinutes != 30 || *flat.MaxBudgetUSD != 5 || !flat.Supabase || !flat.PR.Draft || flat.Harness.Name != "claude-code" ||
		len(flat.Validate) != 3 || flat.Validate[2].Name != "typecheck" || flat.Env["REDIS_URL"] != "redis://redis:6379" {
		t.Errorf("order: %+v", flat)
	}
}

func TestOrderWithoutRepository(t *testing.T) {
	t.Parallel()
	p, err := projects.Parse("/x/p.yaml", []byte("name: x\nbranch: main\nharness: {name: command, command: [./x, '-y']}\npr: {}"),
		projects.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.Order(projects.OrderInput{Task: "t"})
	if err != nil || o.Branch != "" || o.TargetBranch != "" || o.CloneURL != "" || o.PR != nil || !workorder.ValidTaskID(o.TaskID) {
		t.Errorf("%v %+v", err, o)
	}
	if !slices.Equal(o.Harness.Command, []string{"./x", "-y"}) {
		t.Errorf("command %q", o.Harness.Command)
	}
	if _, err := p.Order(projects.OrderInput{Task: " \n"}); err == nil {
		t.Error("an empty task is accepted")
	}
}

func TestLocalRepositoryHasNoCloneURL(t *testing.T) {
	t.Parallel()
	for repo, want := range map[string]string{
		".": "/src", "../x": "/x", "/abs/": "/abs", "file:///abs": "/abs", "~/x": "/home/me/x",
		"a b": "/src/a b",
	} {
		p, err := projects.Parse("/src/p.yaml", []byte("name: x\nrepo: '"+repo+"'"), projects.LoadOptions{Dir: "/cwd", Home: "/home/me"})
		if err != nil {
			t.Fatal(err)
		}
		o, err := p.Order(projects.OrderInput{Task: "t"})
		if err != nil || o.Repo != want || o.CloneURL != "" || o.TargetBranch == "" {
			t.Errorf("repo %q: %v, %q, clone %q", repo, err, o.Repo, o.CloneURL)
		}
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	p := load(t, "testdata/ok/everything.yaml")
	for key, val := range map[string]string{
		"repo": "sub/dir", "branch": "other", "timeout_minutes": "2.5", "isolation": "confined", "supabase": "true",
		"push_interval": "90s", "image": "i:2", "max_budget_usd": "3", "harness": "command",
	} {
		if err := p.Override(key, val, "--"+key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if p.Repo != "/cwd/sub/dir" || p.Branch != "other" || p.TimeoutMinutes != 2.5 || p.Isolation != "confined" || !p.Supabase ||
		p.PushIntervalSeconds != 90 || p.Image != "i:2" || *p.MaxBudgetUSD != 3 || p.Harness.Model != "some/model-1" {
		t.Errorf("overrides are lost: %+v", p)
	}
	if shown := p.Show(true); !strings.Contains(shown, "# --timeout_minutes") || !strings.Contains(shown, "branch: other") {
		t.Errorf("origin is lost:\n%s", shown)
	}
	if err := p.Override("harness", "claude-code", "--harness"); err != nil || p.Harness.Name != "claude-code" || p.Harness.Command != nil {
		t.Errorf("harness: %v %+v", err, p.Harness)
	}
	if err := p.Override("harness.command", "sh -c 'a: {b}' # c", "--command"); err != nil || p.Harness.Name != "command" ||
		!slices.Equal(p.Harness.Command, []string{"sh", "-c", "sh -c 'a: {b}' # c"}) || p.Harness.Model != "" {
		t.Errorf("command: %v %+v", err, p.Harness)
	}
	for key, val := range map[string]string{
		"harness.command": "",
		"repo":            "https://user:hunter2@x/y", "branch": "-x", "timeout_minutes": "0", "isolation": "none", "harness": "copilot",
		"network": "nothing", "network.allow": "https://example.com", "image": "--privileged", "services": "x", "oci_runtime": "",
		"max_budget_usd": "NaN",
	} {
		before := p.Show(true)
		err := p.Override(key, val, "--"+key)
		option, ok := errors.AsType[*projects.OptionError](err)
		if !ok || option.ExitCode() != workorder.ExitUsage || !strings.HasPrefix(err.Error(), "--"+key) {
			t.Errorf("%s %q: %v", key, val, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Error("a credential is printed")
		}
		if p.Show(true) != before {
			t.Errorf("a refused %s changed the project", key)
		}
	}
	if err := p.Override("nope", "x", "--nope"); err == nil {
		t.Error("an unknown key is accepted")
	}
}

func TestRepoTransport(t *testing.T) {
	t.Parallel()
	for repo, want := range map[string]projects.Transport{
		"": projects.TransportNone, "https://github.com/a/b": "http", "http://127.0.0.1:8080/a.git": "http", "HTTPS://x/y": "http",
		"ssh://git@host:22/a/b": "ssh", "git@github.com:a/b.git": "ssh", "host:path": "ssh", "[::1]:path": "ssh",
		".": "local", "./a:b": "local", "/a/b": "local", "~/x": "local", "a/b": "local", "file:///x": "local", `C:\x`: "local",
	} {
		if got, err := projects.RepoTransport(repo); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", repo, got, err, want)
		}
	}
	for _, repo := range []string{
		"-x", "--upload-pack=x", "ext::sh -c id", "fd::3", "https://u@h/x", "https://u:hunter2@h/x", "ssh://u:hunter2@h/x",
		"ssh://-oProxyCommand=x/y",
		"ssh://-x@h/y", "-x@h:y", "u:hunter2@h:p", "h:-x", "git://h/x", "ftp://h/x", "https://", "https://h", "https:///x", "https://h/a b",
		"file://host/x", "a\nb", "github.com/a/b", "https://h:port/x", "https://%zz/",
		"https://evil.example/o%0ahost=github.com%0apath=/r", "https://h/a%00", "ssh://u%0ahost=x@h/y", "file:///a%0ab", "https://h/a%C2%85",
	} {
		got, err := projects.RepoTransport(repo)
		if err == nil {
			t.Errorf("%q is accepted as %q", repo, got)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the message holds the credential: %v", repo, err)
		}
	}
}

// References of tools are commands, whose words the shell does not read.
func TestSecretTools(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{
		"op://vault/it em/field":             "op read 'op://vault/it em/field'",
		"op://v/i/section/f?attribute=otp":   "op read 'op://v/i/section/f?attribute=otp'",
		"op://v/i/$(id)":                     "op read 'op://v/i/$(id)'",
		"vault://secret/data.token":          "vault kv get -field=token secret/data",
		"vault://secret/data.v1.it's":        `vault kv get '-field=it'\''s' secret/data.v1`,
		"vault://secret/data":                "vault kv get -field=value secret/data",
		"op://v/i":                           "",
		"op://":                              "",
		"vault://-address=http://x/secret.t": "",
		"vault://secret/data.":               "",
	} {
		p, err := projects.Parse("x.yaml", []byte("name: x\nsecrets:\n  A: \""+ref+"\"\n"), projects.LoadOptions{})
		switch {
		case want == "" && err == nil:
			t.Errorf("%s is taken as %v", ref, p.Secrets)
		case want == "":
		case err != nil:
			t.Errorf("%s: %v", ref, err)
		default:
			tool, _, _ := strings.Cut(ref, "://")
			if d := cmp.Diff([]projects.Ref{{Scheme: projects.SecretCmd, Target: want, Tool: tool}}, p.Secrets[0].From); d != "" {
				t.Errorf("%s: %s", ref, d)
			}
		}
	}
}

package projects

import (
	"cmp"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func bind(p *Project) {
	r := p.tree
	p.Name = r.Get("name").Str()
	p.Description, p.Init, p.Briefing = r.Get("description").Str(), r.Get("init").Strs(), bindBriefing(r.Get("briefing"))
	p.Agents = nil
	for _, f := range r.Get("agents").Entries() {
		a := Agent{Name: f.Name, Harness: bindHarness(f.Value)}
		if v := f.Value; v != nil && v.Schema.Kind != yamlkeys.Text {
			a.Permissions = Permissions{v.Get("permissions").Get("allow").Strs(), v.Get("permissions").Get("deny").Strs()}
		}
		p.Agents = append(p.Agents, a)
	}
	p.Repo = git.AbsRepoFrom(r.Get("repo").Str(), p.Dir, p.options.Home)
	p.Branch = r.Get("branch").Str()
	p.Repos = nil
	for _, f := range r.Get("repos").Entries() {
		repo := workorder.OrderRepo{Name: f.Name, Repo: f.Text}
		if f.Schema.Kind != yamlkeys.Text {
			repo.Repo, repo.Branch, repo.Repository = f.Get("repo").Str(), f.Get("branch").Str(), f.Get("forge_name").Str()
		}
		repo.Repo = git.AbsRepoFrom(repo.Repo, p.Dir, p.options.Home)
		p.Repos = append(p.Repos, repo)
	}
	p.Supabase = r.Get("supabase").Bool()
	p.Browser = r.Get("browser").Bool()
	p.Services = bindServices(r.Get("services"))
	p.Env = either(r, "env").Texts()
	p.Secrets = bindSecrets(r, p.Dir, p.options.Home)
	p.Packages = r.Get("packages").Strs()
	p.Tools = r.Get("tools").Texts()
	p.Setup = r.Get("lifecycle").Get("setup").Strs()
	p.Validate = nil
	for _, f := range either(r, "validate").Entries() {
		p.Validate = append(p.Validate, workorder.Check{Name: f.Name, Run: f.Text})
	}
	p.Dev = nil
	if d := either(r, "dev"); d != nil {
		p.Dev = &workorder.Dev{
			Command: d.Get("command").Str(), Port: int(d.Get("port").Number()), ReadyPath: d.Get("ready_path").Str(), Pages: d.Get("pages").Strs(),
			StartTimeoutSeconds: d.Get("start_timeout").Number(),
		}
	}
	p.Repair.MaxAttempts = int(r.Get("repair").Get("max_attempts").Number())
	p.Harness = bindHarness(r.Get("harness"))
	p.MaxBudgetUSD = nil
	if b := r.Get("max_budget_usd"); b != nil {
		p.MaxBudgetUSD = new(b.Num)
	}
	p.TimeoutMinutes = r.Get("timeout_minutes").Number()
	p.PR = nil
	if pr := r.Get("pr"); pr != nil {
		p.PR = &workorder.PullRequest{
			Labels: pr.Get("labels").Strs(), Draft: pr.Get("draft").Bool(),
			Reviewers: pr.Get("reviewers").Strs(), Base: pr.Get("base").Str(),
			APIURL: pr.Get("api_url").Str(), Repository: pr.Get("repository").Str(),
		}
	}
	p.Network = bindNetwork(r.Get("network"))
	p.Gateway = bindGateway(r)
	p.TrustBranchConfig = r.Get("trust_branch_config").Bool()
	if s := r.Get("strict"); s != nil {
		p.Strict = new(s.Bool())
	}
	p.NoProof = r.Get("proof") != nil && !r.Get("proof").Bool()
	l := r.Get("limits")
	p.Limits = workorder.Limits{
		MemoryBytes: int64(l.Get("memory").Number()), CPUs: l.Get("cpus").Number(), PIDs: int64(l.Get("pids").Number()),
		DiskBytes: int64(l.Get("disk").Number()),
	}
	p.Isolation = r.Get("isolation").Str()
	p.OCIRuntime = r.Get("oci_runtime").Str()
	p.Image = r.Get("image").Str()
	p.Standby = int(r.Get("standby").Number())
	p.Author = r.Get("author").Str()
	p.PushSecrets = r.Get("push_secrets").Str()
	p.PushIntervalSeconds = r.Get("push_interval").Number()
	p.CheckpointIntervalSeconds = r.Get("checkpoint_interval").Number()
	p.HangTimeoutSeconds = r.Get("hang_timeout").Number()
}

func bindServices(v *value) []workorder.Service {
	var all []workorder.Service
	for _, f := range v.Entries() {
		s := workorder.Service{
			Name: f.Name, Image: f.Get("image").Str(), Command: words(f.Get("command")),
			Env: f.Get("env").Texts(), Ports: f.Get("ports").Strs(), Volumes: f.Get("volumes").Strs(),
			StartTimeoutSeconds: f.Get("start_timeout").Number(),
		}
		if h := f.Get("healthcheck"); h != nil {
			s.Healthcheck = &workorder.Healthcheck{
				Test: healthTest(h.Get("test")), IntervalSeconds: h.Get("interval").Number(),
				TimeoutSeconds: h.Get("timeout").Number(), Retries: int(h.Get("retries").Number()),
			}
		}
		all = append(all, s)
	}
	return all
}

// words returns the arguments of a command; a text is for the shell.
func words(v *value) []string {
	switch {
	case v == nil:
		return nil
	case v.Schema.Kind == yamlkeys.Text:
		return []string{"sh", "-c", v.Text}
	}
	return v.Strs()
}

// healthTest returns a healthcheck as the order has it: one element is for the shell. It accepts compose's leading CMD and CMD-SHELL.
func healthTest(v *value) []string {
	if v == nil {
		return nil
	}
	if v.Schema.Kind == yamlkeys.Text {
		return []string{v.Text}
	}
	t := v.Strs()
	if len(t) < 2 {
		return t
	}
	switch t[0] {
	case "CMD":
		return t[1:]
	case "CMD-SHELL":
		return []string{strings.Join(t[1:], " ")}
	}
	return t
}

func bindSecrets(root *value, dir, home string) []Secret {
	var all []Secret
	named := keysNamed(root)
	for _, f := range root.Get("secrets").Entries() {
		s := Secret{Name: f.Name, Optional: f.Get("optional").Bool(), Use: secretUse(f.Name, f.Value, named)}
		for _, from := range placesOf(f.Value) {
			scheme, target, _ := strings.Cut(from.Text, "://")
			r := Ref{Scheme: scheme, Target: target}
			switch {
			case scheme == SecretFile:
				r.Target = git.AbsPath(target, dir, home)
			case secretTools[scheme] != "":
				r.Scheme, r.Tool = SecretCmd, scheme
				r.Target, _ = readSecret(scheme, target)
			}
			s.From = append(s.From, r)
		}
		all = append(all, s)
	}
	return all
}

func placesOf(secret *value) []*value {
	if secret.Schema.Kind != yamlkeys.Object {
		return []*value{secret}
	}
	if from := secret.Get("from"); from != nil {
		return []*value{from}
	}
	return secret.Get("any_of").Elements()
}

func bindBriefing(v *value) Briefing {
	if v == nil || v.Schema.Kind == yamlkeys.Text {
		return Briefing{Text: v.Str()}
	}
	off := func(name string) bool { return v.Get(name) != nil && !v.Get(name).Bool() }
	return Briefing{v.Get("text").Str(), off("tools"), off("checks"), off("network")}
}

func bindHarness(v *value) workorder.Harness {
	if v == nil || v.Schema.Kind == yamlkeys.Text {
		return workorder.Harness{Name: v.Str()}
	}
	command, name := words(v.Get("command")), v.Get("name").Str()
	if len(command) > 0 {
		name = cmp.Or(name, workorder.HarnessCommand)
	}
	return workorder.Harness{
		Name: name, Command: command, Model: v.Get("model").Str(),
		Args: v.Get("args").Strs(), Version: v.Get("version").Str(),
	}
}

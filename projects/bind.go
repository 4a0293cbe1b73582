package projects

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// bind fills the project from its decoded tree.
func bind(p *Project) {
	r := p.tree
	p.Name = r.get("name").str()
	p.Description, p.Init, p.Briefing = r.get("description").str(), r.get("init").strs(), r.get("briefing").str()
	p.Agents = nil
	for _, f := range r.get("agents").entries() {
		p.Agents = append(p.Agents, Agent{f.name, bindHarness(f.value)})
	}
	p.Repo = git.AbsRepoFrom(r.get("repo").str(), p.Dir, p.options.Home)
	p.Branch = r.get("branch").str()
	p.Supabase = r.get("supabase").bool()
	p.Services = bindServices(r.get("services"))
	p.Env = r.either("env").texts()
	p.Secrets = bindSecrets(r, p.Dir, p.options.Home)
	p.Packages = r.get("packages").strs()
	p.Tools = r.get("tools").texts()
	p.Setup = r.get("lifecycle").get("setup").strs()
	p.Validate = nil
	for _, f := range r.either("validate").entries() {
		p.Validate = append(p.Validate, workorder.Command{Name: f.name, Run: f.text})
	}
	p.Dev = nil
	if d := r.either("dev"); d != nil {
		p.Dev = &workorder.Dev{
			Command: d.get("command").str(), Port: int(d.get("port").number()), ReadyPath: d.get("ready_path").str(), Pages: d.get("pages").strs(),
			StartTimeoutSeconds: d.get("start_timeout").number(),
		}
	}
	p.Repair.MaxAttempts = int(r.get("repair").get("max_attempts").number())
	p.Harness = bindHarness(r.get("harness"))
	p.MaxBudgetUSD = nil
	if b := r.get("max_budget_usd"); b != nil {
		p.MaxBudgetUSD = new(b.num)
	}
	p.TimeoutMinutes = r.get("timeout_minutes").number()
	p.PR = nil
	if pr := r.get("pr"); pr != nil {
		p.PR = &workorder.PullRequest{
			Labels: pr.get("labels").strs(), Draft: pr.get("draft").bool(),
			Reviewers: pr.get("reviewers").strs(), Base: pr.get("base").str(),
			APIURL: pr.get("api_url").str(), Repository: pr.get("repository").str(),
		}
	}
	p.Network = bindNetwork(r.get("network"))
	p.Gateway = bindGateway(r)
	p.TrustBranchConfig = r.get("trust_branch_config").bool()
	if s := r.get("strict"); s != nil {
		p.Strict = new(s.bool())
	}
	p.NoProof = r.get("proof") != nil && !r.get("proof").bool()
	l := r.get("limits")
	p.Limits = workorder.Limits{
		MemoryBytes: int64(l.get("memory").number()), CPUs: l.get("cpus").number(), PIDs: int64(l.get("pids").number()), DiskBytes: int64(l.get("disk").number()),
	}
	p.Isolation = r.get("isolation").str()
	p.OCIRuntime = r.get("oci_runtime").str()
	p.Image = r.get("image").str()
	p.Author = r.get("author").str()
	p.PushSecrets = r.get("push_secrets").str()
	p.PushIntervalSeconds = r.get("push_interval").number()
	p.CheckpointIntervalSeconds = r.get("checkpoint_interval").number()
	p.HangTimeoutSeconds = r.get("hang_timeout").number()
}

func bindServices(v *value) []workorder.Service {
	var all []workorder.Service
	for _, f := range v.entries() {
		s := workorder.Service{
			Name: f.name, Image: f.get("image").str(), Command: f.get("command").argv(),
			Env: f.get("env").texts(), Ports: f.get("ports").strs(), Volumes: f.get("volumes").strs(),
			StartTimeoutSeconds: f.get("start_timeout").number(),
		}
		if h := f.get("healthcheck"); h != nil {
			s.Healthcheck = &workorder.Healthcheck{
				Test: healthTest(h.get("test")), IntervalSeconds: h.get("interval").number(),
				TimeoutSeconds: h.get("timeout").number(), Retries: int(h.get("retries").number()),
			}
		}
		all = append(all, s)
	}
	return all
}

// argv is a command as arguments: a text goes to the shell.
func (v *value) argv() []string {
	switch {
	case v == nil:
		return nil
	case v.schema.kind == text:
		return []string{"sh", "-c", v.text}
	}
	return v.strs()
}

// healthTest is a healthcheck as the order has it: one element is for the
// shell, several are arguments. Compose's leading CMD and CMD-SHELL are understood.
func healthTest(v *value) []string {
	if v == nil {
		return nil
	}
	if v.schema.kind == text {
		return []string{v.text}
	}
	t := v.strs()
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
	for _, f := range root.get("secrets").entries() {
		s := Secret{Name: f.name, Optional: f.get("optional").bool(), Use: secretUse(f.name, f.value, named)}
		for _, from := range placesOf(f.value) {
			scheme, target, _ := strings.Cut(from.text, "://")
			if scheme == SecretFile {
				target = git.AbsPath(target, dir, home)
			}
			s.From = append(s.From, Ref{scheme, target})
		}
		all = append(all, s)
	}
	return all
}

func placesOf(secret *value) []*value {
	if secret.schema.kind != object {
		return []*value{secret}
	}
	if from := secret.get("from"); from != nil {
		return []*value{from}
	}
	return secret.get("any_of").entriesOf()
}

func bindHarness(v *value) workorder.Harness {
	if v == nil || v.schema.kind == text {
		return workorder.Harness{Name: v.str()}
	}
	return workorder.Harness{
		Name: v.get("name").str(), Command: v.get("command").argv(), Model: v.get("model").str(),
		Args: v.get("args").strs(), Version: v.get("version").str(),
	}
}

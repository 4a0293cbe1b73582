package detect

import (
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

const gitlabFile = ".gitlab-ci.yml"

// gitlabKeys are the top-level keys that are not jobs.
var gitlabKeys = []string{
	"default", "include", "stages", "variables", "workflow", "image", "services", "cache", "before_script", "after_script",
	"spec", "pages",
}

// gitlabJob is a job of GitLab CI, or the settings for all of them. Of a wrong form its parts are as if absent.
type gitlabJob struct {
	Extends   yaml.Node `yaml:"extends"`
	Image     yaml.Node `yaml:"image"`
	Before    yaml.Node `yaml:"before_script"`
	Script    yaml.Node `yaml:"script"`
	Services  yaml.Node `yaml:"services"`
	Variables yaml.Node `yaml:"variables"`
	When      string    `yaml:"when"`
	Only      yaml.Node `yaml:"only"`
	Rules     []struct {
		If   string `yaml:"if"`
		When string `yaml:"when"`
	} `yaml:"rules"`
}

// gitlabCI reads the pipeline of GitLab CI.
type gitlabCI struct{ *detector }

func (d gitlabCI) jobs() (jobs []*job) {
	f := d.open(gitlabFile)
	var doc yaml.Node
	var all, settings gitlabJob
	if f == nil || !d.decode(f, &doc, &all) {
		return nil
	}
	nodes := map[string]*yaml.Node{}
	pairs(&doc, func(key, value *yaml.Node) {
		nodes[key.Value] = value
		switch key.Value {
		case "include":
			d.omit(Position{gitlabFile, key.Line}, "include", "other files of a pipeline are not read")
		case "default":
			_ = value.Decode(&settings)
		}
	})
	pairs(&doc, func(key, value *yaml.Node) {
		if slices.Contains(gitlabKeys, key.Value) || strings.HasPrefix(key.Value, ".") {
			return
		}
		var own gitlabJob
		inherit(nodes, value, &own, 0)
		j := d.job(key, []*gitlabJob{&own, &settings, &all})
		if !own.judges() {
			j = &job{name: j.name, at: j.at, aside: true, commands: j.commands}
			for i := range j.commands {
				j.commands[i].verdict = verdict{kind: kindRefused, why: "its job does not run for merge requests or the default branch"}
			}
		}
		jobs = append(jobs, j)
	})
	return jobs
}

// inherit reads a job over those that it extends.
func inherit(nodes map[string]*yaml.Node, n *yaml.Node, into *gitlabJob, depth int) {
	var own gitlabJob
	_ = n.Decode(&own)
	parents := own.Extends.Content
	if own.Extends.Kind == yaml.ScalarNode {
		parents = []*yaml.Node{&own.Extends}
	}
	for _, p := range parents {
		if parent := nodes[p.Value]; parent != nil && depth < maxTaskDepth {
			inherit(nodes, parent, into, depth+1)
		}
	}
	_ = n.Decode(into)
}

// judges reports whether a job runs for merge requests or the default branch.
func (j *gitlabJob) judges() bool {
	tagged := lazyregexp.New(`CI_COMMIT_TAG|schedule`)
	other := func(n *yaml.Node) bool { return n.Value != "tags" && n.Value != "schedules" }
	only := len(j.Only.Content) > 0 && !slices.ContainsFunc(j.Only.Content, other)
	rules := len(j.Rules) > 0
	for _, r := range j.Rules {
		rules = rules && (tagged.MatchString(r.If) || r.When == "manual" || r.When == "never")
	}
	return j.When != "manual" && !only && !rules
}

var imageVersion = lazyregexp.New(`^(?:docker\.io/|library/)*` +
	`(node|golang|python|ruby|rust|php|maven|gradle|openjdk|eclipse-temurin):([0-9]+(?:\.[0-9]+)*)`)

// job reads a job. levels are the job, the defaults and the top of the file.
func (d gitlabCI) job(key *yaml.Node, levels []*gitlabJob) *job {
	at := Position{gitlabFile, key.Line}
	j := &job{name: key.Value, at: at, aside: aside(key.Value)}
	var variables []*yaml.Node
	for _, l := range levels {
		variables = append(variables, &l.Variables)
		pairs(&l.Variables, func(name, value *yaml.Node) {
			if value.Kind == yaml.ScalarNode && !strings.Contains(value.Value, "$") {
				j.env = append(j.env, Var{name.Value, value.Value, Position{gitlabFile, name.Line}})
			}
		})
	}
	for _, l := range levels {
		d.services(j, &l.Services, variables)
	}
	for _, l := range levels {
		if m := imageVersion.FindStringSubmatch(l.Image.Value); m != nil {
			if tool := toolNames[strings.NewReplacer("openjdk", "java", "eclipse-temurin", "java").Replace(m[1])]; tool != "" {
				j.tools = append(j.tools, Tool{tool, m[2], Position{gitlabFile, l.Image.Line}})
			}
			break
		}
	}
	before := slices.IndexFunc(levels, func(l *gitlabJob) bool { return l.Before.Kind != 0 })
	dir := "."
	for _, l := range append(scalars(&levels[max(before, 0)].Before), scalars(&levels[0].Script)...) {
		for _, c := range script(l.Value, dir, Position{gitlabFile, l.Line}) {
			dir = c.dir // one shell runs all lines
			j.commands = append(j.commands, step{command: c})
		}
		if m := changeDir.FindStringSubmatch(strings.TrimSpace(l.Value)); m != nil {
			dir = within(dir, m[1])
		}
	}
	return j
}

// scalars are the texts of a node, those of lists in lists too.
func scalars(n *yaml.Node) (all []*yaml.Node) {
	switch n.Kind {
	case yaml.ScalarNode:
		return []*yaml.Node{n}
	case yaml.AliasNode:
		return scalars(n.Alias)
	case yaml.SequenceNode:
		for _, c := range n.Content {
			all = append(all, scalars(c)...)
		}
	}
	if n.Tag == "!reference" { // lines of another job, which are not read
		words := []string{n.Tag}
		for _, c := range all {
			words = append(words, c.Value)
		}
		return []*yaml.Node{{Value: strings.Join(words, " "), Line: n.Line}}
	}
	return all
}

// services takes the containers beside a job, by the names that GitLab gives them, with the variables that are meant for them.
func (d gitlabCI) services(j *job, services *yaml.Node, variables []*yaml.Node) {
	for _, s := range services.Content {
		at := Position{gitlabFile, s.Line}
		var long struct {
			Name, Alias string
			Command     []string
		}
		if s.Kind == yaml.ScalarNode {
			long.Name = s.Value
		} else if s.Decode(&long) != nil {
			continue
		}
		base := imageBase(long.Name)
		name := strings.ReplaceAll(base, "/", "-")
		if alias := strings.FieldsFunc(long.Alias, func(r rune) bool { return r == ',' || r == ' ' }); len(alias) > 0 {
			name = alias[0]
		}
		if path.Base(base) == "docker" {
			d.omit(at, "services."+name, "the sandbox has Docker")
			continue
		}
		env := d.env(path.Base(base), variables)
		j.services = append(j.services, Service{Name: name, Image: long.Name, Command: long.Command, At: at, Env: env})
	}
}

// env returns the variables of an image: those that begin with its name, as POSTGRES_DB does. GitLab gives a service all variables of its
// job.
func (d gitlabCI) env(image string, variables []*yaml.Node) []Var {
	prefix := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(image)) + "_"
	var vars []Var
	for _, v := range variables {
		pairs(v, func(name, value *yaml.Node) {
			if strings.HasPrefix(name.Value, prefix) && value.Kind == yaml.ScalarNode {
				vars = append(vars, Var{name.Value, strings.ReplaceAll(value.Value, "$", "${"), Position{gitlabFile, name.Line}})
			}
		})
	}
	return d.variablesOf(image, vars)
}

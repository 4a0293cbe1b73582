package detect

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const gitlabFile = ".gitlab-ci.yml"

// gitlabKeys are the top-level keys that are no job.
var gitlabKeys = []string{
	"default", "include", "stages", "variables", "workflow", "image", "services", "cache", "before_script", "after_script",
	"spec", "pages",
}

// gitlabJob is what is used of a job of GitLab CI, or of the settings for all of them.
type gitlabJob struct {
	Script    yaml.Node `yaml:"script"`
	Services  yaml.Node `yaml:"services"`
	Variables yaml.Node `yaml:"variables"`
	When      yaml.Node `yaml:"when"`
}

// gitlabCI reads the pipeline of GitLab CI: services, and commands of jobs that test, lint or build. Other files that it includes, its
// images and what is set up for all jobs are not read.
type gitlabCI struct{ *detector }

func (d gitlabCI) read() {
	f := d.open(gitlabFile)
	if f == nil {
		return
	}
	if len(f.text) > maxWorkflow {
		d.omit(Position{File: f.name}, f.name, "it is larger than 256 kB")
		return
	}
	var doc yaml.Node
	var bounded any // the decoder bounds what aliases multiply; a tree of nodes does not
	err := yaml.Unmarshal([]byte(f.text), &bounded)
	if err == nil {
		err = yaml.Unmarshal([]byte(f.text), &doc)
	}
	if err != nil {
		d.omit(Position{File: f.name}, f.name, err.Error())
		return
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return
	}
	top := doc.Content[0].Content
	var all, settings gitlabJob
	_ = doc.Content[0].Decode(&all) // of a wrong form: as if it were not there
	for i := 0; i+1 < len(top); i += 2 {
		switch top[i].Value {
		case "include":
			d.omit(Position{f.name, top[i].Line}, "include", "other files of a pipeline are not read")
		case "default":
			_ = top[i+1].Decode(&settings)
		}
	}
	d.services(&all.Services, &all.Variables)
	d.services(&settings.Services, &all.Variables)
	for i := 0; i+1 < len(top); i += 2 {
		name := top[i].Value
		if slices.Contains(gitlabKeys, name) || strings.HasPrefix(name, ".") || !checkJobs.MatchString(name) {
			continue
		}
		var job gitlabJob
		if top[i+1].Decode(&job) != nil || job.When.Value == "manual" {
			continue
		}
		d.services(&job.Services, &job.Variables, &all.Variables)
		d.script(&job.Script)
	}
}

// script takes the commands of known kinds. One shell runs a script, so that after a line that changes the folder or the environment
// none means what it says.
func (d gitlabCI) script(node *yaml.Node) {
	lines := node.Content
	if node.Kind == yaml.ScalarNode {
		lines = []*yaml.Node{node}
	}
	for _, l := range lines {
		command := strings.TrimSpace(l.Value)
		if l.Kind != yaml.ScalarNode || ownShell.MatchString(command) {
			return
		}
		if kind := d.kind(command); kind != "" && !strings.Contains(command, "\n") {
			d.check(Position{gitlabFile, l.Line}, kind, command)
		}
	}
}

// ownShell are commands that change the shell for those behind them.
var ownShell = regexp.MustCompile(`(?m)^\s*(?:cd|pushd|export|source|\.|set|eval)\s`)

// services takes the containers beside a job, by the names that GitLab gives them, with the variables that are meant for them.
func (d gitlabCI) services(services *yaml.Node, variables ...*yaml.Node) {
	for _, s := range services.Content {
		at := Position{gitlabFile, s.Line}
		var long struct{ Name, Alias string }
		if s.Kind == yaml.ScalarNode {
			long.Name = s.Value
		} else if s.Decode(&long) != nil {
			continue
		}
		base, _, _ := strings.Cut(long.Name, "@")
		if i := strings.LastIndex(base, ":"); i > strings.LastIndex(base, "/") {
			base = base[:i]
		}
		name := strings.ReplaceAll(base, "/", "-")
		if alias := strings.FieldsFunc(long.Alias, func(r rune) bool { return r == ',' || r == ' ' }); len(alias) > 0 {
			name = alias[0]
		}
		switch {
		case slices.ContainsFunc(d.Services, func(have Service) bool { return have.Name == name }):
		case path.Base(base) == "docker":
			d.omit(at, "services."+name, "the sandbox has Docker")
		case !imageForm.MatchString(long.Name) || !workorder.ValidServiceName(name) || len(d.Services) >= maxList:
			d.omit(at, "services."+name, "its image is not a plain name")
		default:
			d.Services = append(d.Services, Service{Name: name, Image: long.Name, At: at, Env: d.env(path.Base(base), variables)})
		}
	}
}

// env is the variables of an image: those that begin with its name, as POSTGRES_DB does. GitLab gives a service all
// variables of its job.
func (d gitlabCI) env(image string, variables []*yaml.Node) []Var {
	prefix := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(image)) + "_"
	return d.variablesOf(image, func(add addVariable) {
		for _, v := range variables {
			for i := 0; i+1 < len(v.Content); i += 2 {
				name, value := v.Content[i], v.Content[i+1]
				if strings.HasPrefix(name.Value, prefix) && value.Kind == yaml.ScalarNode {
					add(Position{gitlabFile, name.Line}, name.Value, strings.ReplaceAll(value.Value, "$", "${"))
				}
			}
		}
	})
}

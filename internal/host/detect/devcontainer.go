package detect

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// devcontainerJSON is what is used of a devcontainer.json (containers.dev/implementors/json_reference).
type devcontainerJSON struct {
	Image                string                     `json:"image"`
	DockerFile           string                     `json:"dockerFile"`
	Build                json.RawMessage            `json:"build"`
	Features             map[string]json.RawMessage `json:"features"`
	OnCreateCommand      json.RawMessage            `json:"onCreateCommand"`
	UpdateContentCommand json.RawMessage            `json:"updateContentCommand"`
	PostCreateCommand    json.RawMessage            `json:"postCreateCommand"`
	ContainerEnv         map[string]*string         `json:"containerEnv"`
	RemoteEnv            map[string]*string         `json:"remoteEnv"`
	DockerComposeFile    json.RawMessage            `json:"dockerComposeFile"`
	Service              string                     `json:"service"`
	RunServices          []string                   `json:"runServices"`
	ForwardPorts         []any                      `json:"forwardPorts"`
}

// devcontainerFiles are the places that the specification names, in its order.
var devcontainerFiles = []string{".devcontainer/devcontainer.json", ".devcontainer.json"}

type devContainer struct{ *detector }

func (d devContainer) read() {
	f := d.first(devcontainerFiles...)
	if f == nil {
		return
	}
	if len(f.text) > maxWorkflow || deep(f.text) {
		d.omit(Position{File: f.name}, f.name, "it is larger than 256 kB, or "+errDeep.Error())
		return
	}
	root, err := hujson.Parse([]byte(f.text))
	if err != nil {
		d.omit(Position{File: f.name}, f.name, "it is not JSON with comments: "+err.Error())
		return
	}
	at := func(key string) Position {
		if v := root.Find("/" + key); v != nil {
			return f.at(v.StartOffset)
		}
		return Position{File: f.name}
	}
	plain := root.Clone()
	plain.Standardize()
	var c devcontainerJSON
	if err := json.Unmarshal(plain.Pack(), &c); err != nil {
		d.omit(Position{File: f.name}, f.name, err.Error())
		return
	}
	for _, unused := range []struct {
		why  string
		keys []string
	}{
		{"the sandbox has an image of its own", []string{"image", "dockerFile", "build"}},
		{"it would run on this machine", []string{"initializeCommand"}},
		{
			"the sandbox has its own rules, and no directory of this machine is in it",
			[]string{"mounts", "workspaceMount", "runArgs", "privileged", "capAdd", "securityOpt"},
		},
	} {
		for _, key := range unused.keys {
			if root.Find("/"+key) != nil {
				d.omit(at(key), key, unused.why)
			}
		}
	}
	for _, step := range []struct {
		key string
		raw json.RawMessage
	}{{"onCreateCommand", c.OnCreateCommand}, {"updateContentCommand", c.UpdateContentCommand}, {"postCreateCommand", c.PostCreateCommand}} {
		d.lifecycle(at(step.key), step.key, step.raw)
	}
	d.env(at("containerEnv"), c.ContainerEnv)
	d.env(at("remoteEnv"), c.RemoteEnv)
	d.features(at("features"), c.Features)
	for _, p := range c.ForwardPorts {
		// One of another host is a service's.
		if port := portOf(fmt.Sprint(p)); port != 0 && !strings.Contains(fmt.Sprint(p), ":") {
			d.ports = append(d.ports, port)
		}
	}
	d.compose(f, &c, at("dockerComposeFile"))
}

// lifecycle takes a command: a text for a shell, a list of arguments, or several by name.
func (d devContainer) lifecycle(at Position, key string, raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	var named map[string]json.RawMessage
	if json.Unmarshal(raw, &named) == nil {
		for _, name := range sortedKeys(named) {
			d.lifecycle(at, key+"."+name, named[name])
		}
		return
	}
	command := ""
	var args []string
	if json.Unmarshal(raw, &command) != nil {
		if json.Unmarshal(raw, &args) != nil {
			d.omit(at, key, "it is no command")
			return
		}
		command = text.Shell(args...)
	}
	command = here(command)
	if strings.Contains(command, "${") && devVariable.MatchString(command) {
		d.omit(at, key, "it uses variables of the editor")
		return
	}
	d.setup(at, command)
}

// devVariable is a variable that only the editor knows.
var devVariable = regexp.MustCompile(`\$\{(localEnv|containerEnv|localWorkspaceFolder|containerWorkspaceFolder|devcontainerId)`)

// theirTree is where editors put the repository. Codespaces keeps its own things in a folder with a dot.
var theirTree = regexp.MustCompile(`(^|[^A-Za-z0-9._/-])` +
	`(?:\$\{containerWorkspaceFolder\}|/workspaces/(?:\$\{localWorkspaceFolderBasename\}|[A-Za-z0-9_][A-Za-z0-9._-]*))`)

// here puts the sandbox's work tree in its place.
func here(s string) string { return theirTree.ReplaceAllString(s, "${1}"+workorder.Workspace) }

func (d devContainer) env(at Position, env map[string]*string) {
	for _, name := range sortedKeys(env) {
		if env[name] == nil {
			continue
		}
		v := here(*env[name])
		if ownPlace.MatchString(name) && rooted.MatchString(v) && !strings.HasPrefix(v, workorder.Workspace+"/") {
			d.omit(at, "env."+name, "it is a place of the devcontainer's image or volumes")
			continue
		}
		d.variable(at, "env."+name, name, v)
	}
}

// ownPlace and rooted are the names and values of variables that tell tools where they keep things: a GOPATH in a volume that is not there
// fails all of them.
var (
	ownPlace = regexp.MustCompile(`(?:PATH|HOME|DIR|CACHE|HISTORY)$`)
	rooted   = regexp.MustCompile(`^/[^/]+/.`)
)

// variable adds one of the environment where its value is plain; a value that the host fills in may be a secret, and is the user's
// to decide.
func (d *collector) variable(at Position, what, name, value string) {
	switch {
	case !workorder.ValidEnvName(name), len(d.Env) >= maxList:
	case strings.Contains(value, "${"), strings.Contains(value, unset), !plainName(value), len(value) > maxServiceText:
		d.omit(at, what, "its value is not a plain text")
	case serverVariable(name):
		d.omit(at, what, "it names the server that gets the key of your model, which only you can")
	case yamlkeys.LooksSecret(value):
		d.omit(at, what, "its value looks like a secret")
	case !slices.ContainsFunc(d.Env, func(v Var) bool { return v.Name == name }):
		d.Env = append(d.Env, Var{name, value, at})
	}
}

type addVariable func(at Position, name, value string)

// variablesOf are the variables of a service that add takes: by the same rules as those of the project, and apart from them.
func (d *collector) variablesOf(service string, all func(add addVariable)) []Var {
	kept := d.Env
	d.Env = nil
	all(func(at Position, name, value string) { d.variable(at, "services."+service+".env."+name, name, value) })
	vars := d.Env
	d.Env = kept
	return vars
}

// serverVariable reports whether a project goes by a variable of its env for the server that it sends keys of models to.
func serverVariable(name string) bool {
	return name == workorder.APIAnthropic.BaseURLVariable() || name == workorder.APIOpenAI.BaseURLVariable()
}

// featureTools are the features of containers.dev that bring a tool.
var featureTools = map[string]string{
	"node": "node", "python": "python", "go": "go", "rust": "rust", "java": "java", "ruby": "ruby", "php": "php",
}

func (d devContainer) features(at Position, features map[string]json.RawMessage) {
	for _, id := range sortedKeys(features) {
		name, _, _ := strings.Cut(path.Base(id), ":")
		tool := featureTools[name]
		switch {
		case name == "docker-in-docker", name == "docker-outside-of-docker", name == "common-utils", name == "git":
			continue // the sandbox has them
		case tool == "":
			d.omit(at, id, "the feature is not known")
			continue
		}
		var options struct {
			Version any `json:"version"`
		}
		version := ""
		if json.Unmarshal(features[id], &options) == nil && options.Version != nil {
			version = fmt.Sprint(options.Version)
		}
		if version == "" || version == "latest" || version == "lts" || version == "os-provided" {
			continue
		}
		d.tool(at, tool, version)
	}
}

func (d devContainer) compose(f *file, c *devcontainerJSON, at Position) {
	var names []string
	one := ""
	if json.Unmarshal(c.DockerComposeFile, &one) == nil && one != "" {
		names = []string{one}
	} else if len(c.DockerComposeFile) > 0 && json.Unmarshal(c.DockerComposeFile, &names) != nil {
		d.omit(at, "dockerComposeFile", "it is no list of files")
	}
	for _, n := range names[:min(len(names), maxList)] {
		in := path.Join(path.Dir(f.name), n)
		if !plainName(n) {
			d.omit(at, shown(n), "its name has characters that cannot be shown")
			continue
		}
		if path.IsAbs(n) || strings.HasPrefix(in, "..") {
			d.omit(at, n, "it lies outside of the repository")
			continue
		}
		file := d.open(in)
		if file == nil {
			d.omit(at, n, "there is no such file")
			continue
		}
		composeFiles(d).file(file, func(service string) bool {
			return service != c.Service && (len(c.RunServices) == 0 || slices.Contains(c.RunServices, service))
		})
	}
}

// portOf is a port of a text such as 3000 or db:5432; 0 means none.
func portOf(s string) int {
	const highest = 65535
	n, err := strconv.Atoi(s[strings.LastIndex(s, ":")+1:])
	if err != nil || n < 1 || n > highest {
		return 0
	}
	return n
}

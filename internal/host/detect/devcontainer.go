package detect

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/tailscale/hujson"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
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

type devContainer struct {
	*detector
	json    devcontainerJSON
	file    *file
	at      func(key string) Position
	compose []composeService
}

func (d *devContainer) parse() {
	f := d.first(devcontainerFiles...)
	if f == nil {
		return
	}
	if len(f.text) > maxWorkflow || deep(f.text) {
		d.omit(Position{File: f.name}, f.name, "it is larger than 256 kB, or %v", errDeep)
		return
	}
	root, err := hujson.Parse([]byte(f.text))
	if err != nil {
		d.omit(Position{File: f.name}, f.name, "it is not JSON with comments: %v", err)
		return
	}
	d.at = func(key string) Position {
		if v := root.Find("/" + key); v != nil {
			return f.line(v.StartOffset)
		}
		return Position{File: f.name}
	}
	plain := root.Clone()
	plain.Standardize()
	if err := json.Unmarshal(plain.Pack(), &d.json); err != nil {
		d.omit(Position{File: f.name}, f.name, "%v", err)
		d.json = devcontainerJSON{}
		return
	}
	d.file = f
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
				d.omit(d.at(key), key, "%s", unused.why)
			}
		}
	}
	d.features()
	for _, p := range d.json.ForwardPorts {
		// One of another host is a service's.
		if port := portOf(fmt.Sprint(p)); port != 0 && !strings.Contains(fmt.Sprint(p), ":") {
			d.ports = append(d.ports, port)
		}
	}
	d.files()
}

// commands returns the commands of the lifecycle, and those of the setup job of a pipeline.
func (d *devContainer) commands() []step {
	all := d.steps
	if d.file == nil {
		return all
	}
	c := &d.json
	for _, hook := range []struct {
		key string
		raw json.RawMessage
	}{{"onCreateCommand", c.OnCreateCommand}, {"updateContentCommand", c.UpdateContentCommand}, {"postCreateCommand", c.PostCreateCommand}} {
		for _, s := range d.hook(d.at(hook.key), hook.key, hook.raw) {
			all = append(all, step{command: s})
		}
	}
	return all
}

// hook reads a command: a text for a shell, a list of arguments, or several by name.
func (d *devContainer) hook(at Position, key string, raw json.RawMessage) (all []command) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var named map[string]json.RawMessage
	if json.Unmarshal(raw, &named) == nil {
		for _, name := range sortedKeys(named) {
			all = append(all, d.hook(at, key+"."+name, named[name])...)
		}
		return all
	}
	content := ""
	var args []string
	if json.Unmarshal(raw, &content) != nil {
		if json.Unmarshal(raw, &args) != nil {
			d.omit(at, key, "it is not a command")
			return nil
		}
		content = text.Shell(args...)
	}
	content = here(content)
	if strings.Contains(content, "${") && devVariable.MatchString(content) {
		d.omit(at, key, "it uses variables of the editor")
		return nil
	}
	if compound.MatchString(content) || oneShell.MatchString(content) {
		return []command{{text: content, dir: ".", at: at, complex: true}}
	}
	return script(content, ".", at)
}

// oneShell is in scripts whose commands share a shell: they load files into it, or are not lines of plain commands.
var oneShell = lazyregexp.New(`(?m)(?:^|[;&]\s*)(?:\.|source|set|nvm|trap)\s|[()]|\|\||<<`)

// devVariable is a variable that only the editor knows.
var devVariable = lazyregexp.New(`\$\{(localEnv|containerEnv|localWorkspaceFolder|containerWorkspaceFolder|devcontainerId)`)

// theirTree is where editors put the repository. Codespaces keeps its own things in a folder with a dot.
var theirTree = lazyregexp.New(`(^|[^A-Za-z0-9._/-])` +
	`(?:\$\{containerWorkspaceFolder\}|/workspaces/(?:\$\{localWorkspaceFolderBasename\}|[A-Za-z0-9_][A-Za-z0-9._-]*))`)

// here puts the sandbox's work tree in its place.
func here(s string) string { return theirTree.ReplaceAllString(s, "${1}"+workorder.Workspace) }

// environment takes the variables of the dev container, and of its own service of a compose file.
func (d *devContainer) environment() {
	if d.file == nil {
		return
	}
	for _, of := range []struct {
		key string
		env map[string]*string
	}{{"containerEnv", d.json.ContainerEnv}, {"remoteEnv", d.json.RemoteEnv}} {
		for _, name := range sortedKeys(of.env) {
			if v := of.env[name]; v != nil {
				d.placed(d.at(of.key), name, here(*v))
			}
		}
	}
	for _, s := range d.compose {
		if s.name == d.json.Service {
			d.own(s)
		}
	}
}

// own takes the variables of the service that is the dev container.
func (d *devContainer) own(s composeService) {
	if len(fmt.Sprint(s.raw)) > maxService {
		return
	}
	for _, v := range varsOf(variables(s.filled(s.raw["environment"])), s.at) {
		d.placed(v.At, v.Name, here(v.Value))
	}
	files, _ := s.raw["env_file"].([]any)
	if one, ok := s.raw["env_file"].(string); ok {
		files = []any{one}
	}
	for _, each := range files {
		name := path.Join(path.Dir(s.at.File), fmt.Sprint(each))
		f := d.source.at(name)
		if f == nil || path.Base(name) == ".env" { // the user's own
			d.omit(s.at, "env_file", "%s is not in the repository", fmt.Sprint(each))
			continue
		}
		vars, _ := dotenv.UnmarshalWithLookup(withoutVariables(f.text), nil)
		for _, k := range sortedKeys(vars) {
			d.placed(Position{File: f.name}, k, vars[k])
		}
	}
}

// featureTools are the features of containers.dev that bring a tool.
var featureTools = map[string]string{
	"node": "node", "python": "python", "go": "go", "rust": "rust", "java": "java", "ruby": "ruby", "php": "php",
}

func (d *devContainer) features() {
	at, features := d.at("features"), d.json.Features
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
		d.hint(hintDev, at, tool, version)
	}
}

// files reads the compose files.
func (d *devContainer) files() {
	at := d.at("dockerComposeFile")
	var names []string
	one := ""
	if json.Unmarshal(d.json.DockerComposeFile, &one) == nil && one != "" {
		names = []string{one}
	} else if len(d.json.DockerComposeFile) > 0 && json.Unmarshal(d.json.DockerComposeFile, &names) != nil {
		d.omit(at, "dockerComposeFile", "it is not a list of files")
	}
	for _, n := range names[:min(len(names), maxList)] {
		in := path.Join(path.Dir(d.file.name), n)
		if !plainName(n) {
			d.omit(at, shown(n), "its name has characters that cannot be printed")
			continue
		}
		if path.IsAbs(n) || strings.HasPrefix(in, "..") {
			d.omit(at, n, "it is outside of the repository")
			continue
		}
		f := d.source.at(in)
		if f == nil {
			d.omit(at, n, "there is no such file")
			continue
		}
		d.compose = merged(d.compose, composeFiles{d.detector}.read(f))
	}
}

// services takes the services that start with the dev container.
func (d *devContainer) services() {
	own := ""
	for _, s := range d.compose {
		if s.name == d.json.Service {
			own, _ = s.raw["network_mode"].(string)
		}
	}
	started := d.started()
	for _, s := range d.compose {
		if s.name == d.json.Service || len(d.json.RunServices) > 0 && !slices.Contains(started, s.name) {
			continue
		}
		composeFiles{d.detector}.service(s)
		if i := slices.IndexFunc(d.Services, func(have Service) bool { return have.Name == s.name }); i >= 0 && own == "service:"+s.name {
			d.Services[i].local()
		}
	}
}

// started lists the services that start with the dev container: those of runServices and its own, and those that they depend on.
func (d *devContainer) started() []string {
	names := append([]string{d.json.Service}, d.json.RunServices...)
	for i := 0; i < len(names) && i < maxList; i++ {
		for _, s := range d.compose {
			if s.name != names[i] {
				continue
			}
			more := words(s.raw["depends_on"])
			if long, ok := s.raw["depends_on"].(map[string]any); ok {
				more = sortedKeys(long)
			}
			for _, name := range more {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
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

// Package importer converts files of other tools to project files and reports settings without a counterpart.
package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

// environment is container-use's environment.json.
type environment struct {
	Workdir  string    `json:"workdir"`
	Image    string    `json:"base_image"`
	Setup    []string  `json:"setup_commands"`
	Install  []string  `json:"install_commands"`
	Env      pairs     `json:"env"`
	Secrets  pairs     `json:"secrets"`
	Services []service `json:"services"`
}

type service struct {
	Name    string `json:"name"`
	Image   string `json:"image"`
	Command string `json:"command"`
	Ports   []int  `json:"exposed_ports"`
	Env     pairs  `json:"env"`
	Secrets pairs  `json:"secrets"`
}

// pairs are NAME=value, from a list, or from a mapping sorted by name.
type pairs []string

func (p *pairs) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) == nil {
		*p = list
		return nil
	}
	var m map[string]string
	if err := json.Unmarshal(b, &m); err != nil {
		return errors.New("use a list of NAME=value, or a mapping to strings")
	}
	for k, v := range m {
		*p = append(*p, k+"="+v)
	}
	slices.Sort(*p)
	return nil
}

// usualImages are images that sandbox-agent's own image replaces.
var usualImages = []string{"", "ubuntu:24.04", "ubuntu", "ubuntu:latest"}

// ContainerUse converts container-use's file to a project file with that name. The notes are settings without a counterpart.
func ContainerUse(file, name string) (text string, notes []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", nil, fmt.Errorf("import a project: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", file, maxFile)
	}
	if err != nil {
		return "", nil, fmt.Errorf("import a project: %w", err)
	}
	var e environment
	if err := json.Unmarshal(b, &e); err != nil {
		return "", nil, fmt.Errorf("import a project: %s: %w", file, err)
	}
	d := &document{}
	d.unknown(b, "", reflect.TypeFor[environment]())
	root := d.mapping()
	root.text("name", name)
	if !slices.Contains(usualImages, e.Image) {
		d.note("base_image %s: the sandbox has sandbox-agent's own image; `packages` and `tools` add to it", e.Image)
	}
	if e.Workdir != "" && e.Workdir != "/workdir" && e.Workdir != workorder.Workspace {
		d.note("workdir %s: the repository is at /workspace", e.Workdir)
	}
	packages, commands := d.setup(slices.Concat(e.Setup, e.Install))
	root.list("packages", packages)
	if len(commands) > 0 {
		root.child("lifecycle").list("setup", commands)
	}
	if len(e.Services) > 0 {
		all := root.child("services")
		for _, s := range e.Services {
			one := all.child(s.Name)
			one.text("image", s.Image)
			if s.Command != "" {
				one.text("command", s.Command)
			}
			ports := make([]string, 0, len(s.Ports))
			for _, p := range s.Ports {
				ports = append(ports, fmt.Sprint(p))
			}
			one.list("ports", ports)
			d.pairs(one, "env", s.Env, func(v string) string { return v })
			for _, kv := range s.Secrets {
				name, _, _ := strings.Cut(kv, "=")
				d.note("services.%s.secrets.%s: services cannot have the user's secrets", s.Name, name)
			}
		}
	}
	d.pairs(root, "env", e.Env, func(v string) string {
		if strings.Contains(v, "$") {
			d.note("env: %q is kept unchanged: variables in values are not expanded", v)
		}
		return v
	})
	d.pairs(root, "secrets", e.Secrets, d.reference)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	const indent = 2
	enc.SetIndent(indent)
	if err := errors.Join(enc.Encode(root.n), enc.Close()); err != nil {
		return "", nil, fmt.Errorf("import a project: %w", err)
	}
	return out.String(), d.notes, nil
}

type document struct{ notes []string }

func (d *document) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// unknown notes the keys of a JSON object, and of the objects in its lists, that the type has no field for.
func (d *document) unknown(b []byte, in string, t reflect.Type) {
	var m map[string]json.RawMessage
	if json.Unmarshal(b, &m) != nil {
		return // an error of its own
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		var field reflect.StructField
		for f := range t.Fields() {
			if strings.EqualFold(f.Tag.Get("json"), name) { // as encoding/json finds it
				field = f
			}
		}
		var list []json.RawMessage
		switch {
		case field.Type == nil:
			d.note("%s%s: dropped: unknown key", in, name)
		case field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct && json.Unmarshal(m[name], &list) == nil:
			for i, one := range list {
				d.unknown(one, fmt.Sprintf("%s%s[%d].", in, name, i), field.Type.Elem())
			}
		}
	}
}

// setup converts commands that only install packages, because setup does not run as root here.
func (d *document) setup(all []string) (packages, commands []string) {
	for _, c := range all {
		names, rest := detect.Apt(c)
		for _, n := range names {
			if !slices.Contains(packages, n) {
				packages = append(packages, n)
			}
		}
		if rest == "" && c != "" {
			continue
		}
		if rootOnly.MatchString(rest) {
			d.note("setup: %q: setup runs as the user, who cannot install packages: list them in `packages`", rest)
		}
		commands = append(commands, rest)
	}
	return packages, commands
}

// rootOnly matches a call of a package manager.
var rootOnly = lazyregexp.New(`\b(?:apt|apt-get|dpkg|apk|dnf|yum)\s+\S`)

// reference converts a secret to a reference of project files.
func (d *document) reference(v string) string {
	switch scheme, _, _ := strings.Cut(v, "://"); scheme {
	case "env", "file", "op", "vault":
		return v
	}
	d.note("a secret is written as a value: store it elsewhere and put a reference here")
	return "env://PUT_A_REFERENCE_HERE"
}

func (d *document) pairs(m mapping, name string, all pairs, value func(string) string) {
	if len(all) == 0 {
		return
	}
	to := m.child(name)
	for _, kv := range all {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			d.note("%s: %q has no value", name, kv)
			continue
		}
		to.text(k, value(v))
	}
}

type mapping struct{ n *yaml.Node }

func (*document) mapping() mapping { return mapping{&yaml.Node{Kind: yaml.MappingNode}} }

func scalar(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// text sets a key. As in container-use, the last value of a repeated key counts.
func (m mapping) text(name, value string) {
	for i := 0; i < len(m.n.Content); i += 2 {
		if m.n.Content[i].Value == name {
			m.n.Content[i+1] = scalar(value)
			return
		}
	}
	m.n.Content = append(m.n.Content, scalar(name), scalar(value))
}

func (m mapping) child(name string) mapping {
	c := &yaml.Node{Kind: yaml.MappingNode}
	m.n.Content = append(m.n.Content, scalar(name), c)
	return mapping{c}
}

func (m mapping) list(name string, values []string) {
	if len(values) == 0 {
		return
	}
	l := &yaml.Node{Kind: yaml.SequenceNode}
	for _, v := range values {
		l.Content = append(l.Content, scalar(v))
	}
	m.n.Content = append(m.n.Content, scalar(name), l)
}

package scaffold

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// service is a service of a compose file, as far as a project can have it.
type service struct {
	name, image string
	command     yaml.Node
	env         [][2]string
	ports       []string
	health      composeHealth
	volumes     []string
}

type composeHealth struct {
	Test     yaml.Node `yaml:"test"`
	Interval string    `yaml:"interval"`
	Timeout  string    `yaml:"timeout"`
	Retries  int       `yaml:"retries"`
}

type composeService struct {
	Image       string        `yaml:"image"`
	Build       yaml.Node     `yaml:"build"`
	Command     yaml.Node     `yaml:"command"`
	Environment yaml.Node     `yaml:"environment"`
	Ports       []yaml.Node   `yaml:"ports"`
	Expose      []yaml.Node   `yaml:"expose"`
	Healthcheck composeHealth `yaml:"healthcheck"`
	Volumes     []yaml.Node   `yaml:"volumes"`
}

var (
	duration  = regexp.MustCompile(`^([0-9.]+(ms|s|m|h))+$`)
	portPart  = regexp.MustCompile(`^[1-9][0-9]{0,4}(/udp)?$`)
	volName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*:/[^:\s]+$`)
	imageForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)
)

func (d *Draft) compose(dir fs.FS) {
	for _, name := range []string{"compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"} {
		text, ok := read(dir, name)
		if !ok {
			continue
		}
		d.found(name)
		var file struct {
			Services yaml.Node `yaml:"services"`
		}
		if yaml.Unmarshal([]byte(text), &file) != nil || file.Services.Kind != yaml.MappingNode {
			d.remarks = append(d.remarks, name+" could not be read")
			return
		}
		for i := 0; i+1 < len(file.Services.Content); i += 2 {
			d.composeService(file.Services.Content[i].Value, file.Services.Content[i+1])
		}
		return
	}
}

func (d *Draft) composeService(name string, n *yaml.Node) {
	var c composeService
	skip := func(why string) {
		d.remarks = append(d.remarks, fmt.Sprintf("service %q of the compose file was left out: %s", name, why))
	}
	switch {
	case n.Decode(&c) != nil:
		skip("it could not be read")
		return
	case c.Image == "" || c.Build.Kind != 0:
		skip("it is built and not an image")
		return
	case !imageForm.MatchString(c.Image), !workorder.ValidServiceName(name):
		skip("its image or name cannot be used as it is")
		return
	}
	s := service{name: name, image: c.Image, command: c.Command, health: c.Healthcheck}
	s.env = d.composeEnv(name, &c.Environment)
	for _, p := range append(c.Ports, c.Expose...) {
		v := p.Value
		if p.Kind == yaml.MappingNode {
			var long struct{ Target, Protocol string }
			_ = p.Decode(&long) // a port that cannot be read is left out below
			v = strings.TrimSuffix(long.Target+"/"+long.Protocol, "/")
		}
		v = strings.TrimSuffix(v[strings.LastIndex(v, ":")+1:], "/tcp")
		if portPart.MatchString(v) {
			s.ports = append(s.ports, v)
		}
	}
	for _, v := range c.Volumes {
		if volName.MatchString(v.Value) {
			s.volumes = append(s.volumes, v.Value)
		}
	}
	d.services = append(d.services, s)
}

// composeEnv keeps literal values. Values that the host's environment fills in may be
// a secret, and is a decision of the user.
func (d *Draft) composeEnv(service string, n *yaml.Node) [][2]string {
	var env [][2]string
	add := func(k, v string) {
		switch {
		case !workorder.ValidEnvName(k):
		case strings.Contains(v, "$"), strings.ContainsAny(v, "\n"), projects.LooksSecret(v):
			d.remarks = append(d.remarks, fmt.Sprintf("services.%s.env.%s was left out: its value is not a plain text", service, k))
		default:
			env = append(env, [2]string{k, v})
		}
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind == yaml.ScalarNode {
				add(n.Content[i].Value, n.Content[i+1].Value)
			}
		}
	case yaml.SequenceNode:
		for _, e := range n.Content {
			if k, v, ok := strings.Cut(e.Value, "="); ok {
				add(k, v)
			}
		}
	}
	return env
}

func (d *Draft) servicesYAML(line func(string, ...any)) {
	line("")
	line("# Containers the task needs, in the sandbox's own Docker; each is reachable by its name.")
	if len(d.services) == 0 {
		line("# services:")
		line("#   redis:")
		line("#     image: redis:7-alpine")
		return
	}
	line("services:")
	for _, s := range d.services {
		line("  %s:", s.name)
		line("    image: %s", scalar(s.image))
		if c := commandYAML(&s.command); c != "" {
			line("    command: %s", c)
		}
		if len(s.env) > 0 {
			line("    env:")
			for _, e := range s.env {
				line("      %s: %s", e[0], scalar(e[1]))
			}
		}
		if len(s.ports) > 0 {
			line("    ports: [%s]", strings.Join(s.ports, ", "))
		}
		if t := commandYAML(&s.health.Test); t != "" && !strings.Contains(t, "NONE") {
			line("    healthcheck:")
			line("      test: %s", t)
			if duration.MatchString(s.health.Interval) {
				line("      interval: %s", s.health.Interval)
			}
			if duration.MatchString(s.health.Timeout) {
				line("      timeout: %s", s.health.Timeout)
			}
			if s.health.Retries > 0 {
				line("      retries: %d", s.health.Retries)
			}
		}
		if len(s.volumes) > 0 {
			line("    volumes: [%s]", strings.Join(s.volumes, ", "))
		}
	}
}

// commandYAML is a command as a text or a list; empty when there is none or
// when compose would have filled something in. A doubled dollar sign is one.
func commandYAML(n *yaml.Node) string {
	plain := func(s string) (string, bool) {
		s = strings.ReplaceAll(s, "$$", "\x00")
		ok := !strings.Contains(s, "$")
		return scalar(strings.ReplaceAll(s, "\x00", "$")), ok
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if s, ok := plain(n.Value); ok && strings.TrimSpace(n.Value) != "" {
			return s
		}
	case yaml.SequenceNode:
		var args []string
		for _, a := range n.Content {
			s, ok := plain(a.Value)
			if !ok || a.Kind != yaml.ScalarNode {
				return ""
			}
			if strings.ContainsAny(s, ",[]{}") && !strings.HasPrefix(s, `"`) && !strings.HasPrefix(s, "'") {
				s = "'" + s + "'"
			}
			args = append(args, s)
		}
		if len(args) > 0 {
			return "[" + strings.Join(args, ", ") + "]"
		}
	}
	return ""
}

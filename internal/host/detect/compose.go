package detect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Service is a container that the repository's own development uses.
type Service struct {
	Name, Image string
	Command     []string
	Env         []Var
	Ports       []string // 5432 or 53/udp
	Health      Health
	Volumes     []string // name:/path
	At          Position
}

// Health is how a service says that it is ready. Test is as Docker has it: CMD and arguments, or CMD-SHELL and a text.
type Health struct {
	Test              []string
	Interval, Timeout string // of Go's form; empty means Docker's default
	Retries           int
}

// composeNames are the files that `docker compose` looks for, in its order, and the one that it puts over them.
var composeNames = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}

type composeFiles struct{ *detector }

func (d composeFiles) read() {
	if f := d.first(composeNames...); f != nil {
		d.file(f, func(string) bool { return true })
	}
}

// composeKeys are those of a service that say what the sandbox can give. The others may name files of the host, other files and
// other services: the loader never sees them.
var composeKeys = []string{"image", "command", "environment", "ports", "expose", "healthcheck", "volumes"}

// composeHost are keys of a service that reach other files or the machine that it runs on.
var composeHost = []string{
	"cap_add", "configs", "credential_spec", "device_cgroup_rules", "devices", "env_file", "extends", "ipc", "label_file",
	"network_mode", "pid", "privileged", "secrets", "security_opt", "userns_mode", "volumes_from",
}

// file takes the services of a file, each on its own: one that cannot be used costs no other.
func (d composeFiles) file(f *file, wanted func(string) bool) {
	var doc yaml.Node
	var all struct {
		Services map[string]map[string]any `yaml:"services"`
	}
	if len(f.text) > maxWorkflow {
		d.omit(Position{File: f.name}, f.name, "it is larger than 256 kB")
		return
	}
	// Decoding bounds what aliases multiply.
	if err := yaml.Unmarshal([]byte(f.text), &doc); err != nil {
		d.omit(Position{File: f.name}, f.name, err.Error())
		return
	}
	if err := doc.Decode(&all); err != nil {
		d.omit(Position{File: f.name}, f.name, err.Error())
		return
	}
	for i := 0; len(doc.Content) > 0 && i+1 < len(doc.Content[0].Content); i += 2 {
		if key := doc.Content[0].Content[i]; key.Value == "include" {
			d.omit(Position{File: f.name, Line: key.Line}, "include", "other files are not read")
		}
	}
	look := d.examples(path.Dir(f.name))
	for i, name := range serviceOrder(&doc) {
		at := Position{File: f.name, Line: name.Line}
		if i >= maxList {
			d.omit(at, "services", fmt.Sprintf("more than %d", maxList))
			return
		}
		if wanted(name.Value) {
			d.service(at, name.Value, all.Services[name.Value], look)
		}
	}
}

// serviceOrder lists the nodes that name the services, as they stand in the file.
func serviceOrder(doc *yaml.Node) (names []*yaml.Node) {
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil
	}
	for top := doc.Content[0].Content; len(top) > 1; top = top[2:] {
		if top[0].Value != "services" || top[1].Kind != yaml.MappingNode {
			continue
		}
		for s := top[1].Content; len(s) > 1; s = s[2:] {
			names = append(names, s[0])
		}
	}
	return names
}

// maxExample bounds the value of a variable, which each text of a service may name many times.
const maxExample = 1000

// examples are the variables that a repository shows how to set. Its .env is the user's own and not read.
func (d composeFiles) examples(folder string) map[string]string {
	for _, n := range []string{".env.example", ".env.sample", ".env.template"} {
		if f := d.open(path.Join(folder, n)); f != nil {
			if vars, err := dotenv.UnmarshalWithLookup(withoutVariables(f.text), nil); err == nil {
				maps.DeleteFunc(vars, func(_, value string) bool { return len(value) > maxExample })
				return vars
			}
		}
	}
	return nil
}

var imageForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)

// unset stands for a variable without a value: no text of a file contains it.
const unset = "\x00"

func (d composeFiles) service(at Position, name string, raw map[string]any, vars map[string]string) {
	skip := func(why string) { d.omit(at, "services."+name, why) }
	if profiles, _ := raw["profiles"].([]any); len(profiles) > 0 {
		return // not of those that start unasked
	}
	if _, built := raw["build"]; built {
		d.built(raw)
		skip("it is built from the repository; the agent can, with the sandbox's own Docker")
		return
	}
	if slices.ContainsFunc(d.Services, func(s Service) bool { return s.Name == name }) {
		return
	}
	if err := cmp.Or(small(raw), narrow(raw["ports"]), narrow(raw["expose"])); err != nil {
		skip(err.Error())
		return
	}
	c, err := loadService(d.ctx, name, raw, vars)
	switch {
	case err != nil:
		skip(err.Error())
		return
	case c.Image == "":
		skip("it has no image")
		return
	case !imageForm.MatchString(c.Image), !workorder.ValidServiceName(name):
		skip("its image or name cannot be used as it is")
		return
	case slices.ContainsFunc(c.Command, func(a string) bool { return strings.Contains(a, unset) }):
		skip("its command needs a variable that has no value")
		return
	}
	s := Service{Name: name, Image: c.Image, Command: c.Command, At: at, Ports: d.published(composePorts(c), hostPorts(raw["ports"], vars))}
	s.Env = d.env(at, name, c.Environment)
	for _, v := range c.Volumes {
		switch {
		case v.Type == types.VolumeTypeVolume && v.Source != "" && strings.HasPrefix(v.Target, "/") && !strings.ContainsAny(v.Target, ": \n"):
			s.Volumes = append(s.Volumes, v.Source+":"+v.Target)
		case v.Type == types.VolumeTypeBind:
			d.omit(at, "services."+name+".volumes", "folders of the host do not exist in the sandbox: "+v.Source)
		}
	}
	if c.HealthCheck != nil {
		s.Health = healthOf(c.HealthCheck)
	}
	d.Services = append(d.Services, s)
	if unused := slices.DeleteFunc(slices.Clone(composeHost), func(key string) bool { return raw[key] == nil }); len(unused) > 0 {
		d.omit(at, "services."+name, "not used of it, as it would reach other files or this machine: "+strings.Join(unused, ", "))
	}
}

func healthOf(h *types.HealthCheckConfig) Health {
	if h.Disable || len(h.Test) < 2 || h.Test[0] == "NONE" || strings.Contains(strings.Join(h.Test, " "), unset) {
		return Health{}
	}
	health := Health{Test: h.Test, Interval: span(h.Interval), Timeout: span(h.Timeout)}
	if h.Retries != nil {
		health.Retries = int(min(*h.Retries, 1000))
	}
	return health
}

func span(t *types.Duration) string {
	if t == nil || *t <= 0 {
		return ""
	}
	return t.String()
}

// built takes the port of a service that is built here: its development server's.
func (d composeFiles) built(raw map[string]any) {
	ports, _ := raw["ports"].([]any)
	for _, p := range ports {
		if port := portOf(containerPart(fmt.Sprint(p))); port != 0 {
			d.ports = append(d.ports, port)
		}
	}
}

func loadService(ctx context.Context, name string, raw map[string]any, vars map[string]string) (*types.ServiceConfig, error) {
	only := map[string]any{}
	for _, k := range composeKeys {
		if v, ok := raw[k]; ok {
			only[k] = v
		}
	}
	if ports, ok := only["ports"].([]any); ok {
		only["ports"] = containerParts(ports)
	}
	project, err := loader.LoadWithContext(ctx, types.ConfigDetails{
		WorkingDir:  "/",
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Config: map[string]any{"services": map[string]any{name: only}}}},
	}, func(o *loader.Options) {
		o.SetProjectName("detect", true)
		o.SkipInclude, o.SkipExtends, o.SkipResolveEnvironment, o.SkipResolveLabels = true, true, true, true
		o.SkipConsistencyCheck, o.ResolvePaths = true, false
		o.Interpolate.LookupValue = func(key string) (string, bool) {
			v, ok := vars[key]
			return v, ok
		}
		o.Interpolate.Substitute = substitute
	})
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "validating compose.yaml: "))
	}
	c, err := project.GetService(name)
	return &c, err
}

// substitute fills variables in. A text with one that has neither value nor default becomes unset: half a text is no value.
func substitute(s string, look template.Mapping) (string, error) {
	for _, v := range template.ExtractVariables(map[string]any{"": s}, template.DefaultPattern) {
		if _, ok := look(v.Name); !ok && v.DefaultValue == "" && v.PresenceValue == "" {
			return unset, nil
		}
	}
	return template.SubstituteWithOptions(s, look, template.WithoutLogging)
}

// onHost is a port as it is written with the one that leads there on the developer's machine, or on that of a workflow.
var onHost = regexp.MustCompile(`^(?:(?:127\.0\.0\.1|0\.0\.0\.0):)?([0-9]+):([0-9]+(?:/(?:tcp|udp))?)$`)

// hostPorts are the ports that lead to those of a container, by the latter.
func hostPorts(raw any, vars map[string]string) map[string]string {
	ports, _ := raw.([]any)
	lead := map[string]string{}
	for _, p := range ports {
		text := fmt.Sprint(p)
		if m, ok := p.(map[string]any); ok && m["protocol"] != "udp" {
			text = fmt.Sprintf("%v:%v", m["published"], m["target"])
		}
		text, err := substitute(text, func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
		if err != nil {
			continue
		}
		if m := onHost.FindStringSubmatch(text); m != nil && portOf(m[1]) != 0 {
			lead[strings.TrimSuffix(m[2], "/tcp")] = m[1]
		}
	}
	return lead
}

// published puts in front of ports those that lead there: a project's tests often look for its services at localhost. Each counts
// once: services of several jobs never run at the same time.
func (d *collector) published(ports []string, lead map[string]string) (all []string) {
	for _, p := range ports {
		outer := lead[strings.TrimSuffix(p, "/tcp")]
		taken := slices.ContainsFunc(d.Services, func(s Service) bool {
			return slices.ContainsFunc(s.Ports, func(have string) bool { return strings.HasPrefix(have, outer+":") })
		})
		if outer != "" && !taken {
			p = outer + ":" + p
		}
		all = append(all, p)
	}
	return all
}

// containerParts leaves the host's half of ports away, which may be a variable without a value.
func containerParts(ports []any) (parts []any) {
	for _, p := range ports {
		if s, ok := p.(string); ok {
			p = containerPart(s)
		}
		if m, ok := p.(map[string]any); ok {
			p = map[string]any{"target": m["target"], "protocol": m["protocol"]}
			if m["protocol"] == nil {
				p = map[string]any{"target": m["target"]}
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// containerPart is what stands behind the last colon outside of braces.
func containerPart(s string) string {
	depth := 0
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case '}':
			depth++
		case '{':
			depth--
		case ':':
			if depth == 0 {
				return s[i+1:]
			}
		}
	}
	return s
}

func composePorts(c *types.ServiceConfig) (ports []string) {
	add := func(target, protocol string) {
		if protocol == "udp" {
			target += "/udp"
		}
		if portOf(strings.TrimSuffix(target, "/udp")) != 0 && !slices.Contains(ports, target) {
			ports = append(ports, target)
		}
	}
	for _, p := range c.Ports {
		add(strconv.Itoa(int(p.Target)), p.Protocol)
	}
	for _, e := range c.Expose {
		port, protocol, _ := strings.Cut(e, "/")
		add(port, protocol)
	}
	return ports
}

func (d composeFiles) env(at Position, service string, env types.MappingWithEquals) []Var {
	return d.variablesOf(service, func(add addVariable) {
		for _, k := range sortedKeys(env) {
			if v := env[k]; v != nil {
				add(at, k, *v)
			}
		}
	})
}

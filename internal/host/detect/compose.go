package detect

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/mattn/go-shellwords"
	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// composeNames are the files that `docker compose` looks for, in its order, and the one that it puts over them.
var composeNames = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}

// composeOverrides are the files that it puts over them.
var composeOverrides = []string{
	"compose.override.yaml", "compose.override.yml", "docker-compose.override.yml", "docker-compose.override.yaml",
}

type composeFiles struct{ *detector }

// composeService is a service of a compose file.
type composeService struct {
	name string
	at   Position
	raw  map[string]any
	vars map[string]string // for its texts
}

// composeHost are keys of a service that reach other files or the machine that it runs on.
var composeHost = []string{
	"cap_add", "configs", "credential_spec", "device_cgroup_rules", "devices", "env_file", "extends", "ipc", "label_file",
	"pid", "privileged", "secrets", "security_opt", "userns_mode", "volumes_from",
}

// read returns the services of a file in its order, with those of the override file next to it.
func (d composeFiles) read(f *file) (services []composeService) {
	var doc yaml.Node
	var all struct {
		Services map[string]map[string]any `yaml:"services"`
	}
	if !d.decode(f, &doc) {
		return nil
	}
	if err := doc.Decode(&all); err != nil {
		d.omit(Position{File: f.name}, f.name, "%v", err)
		return nil
	}
	vars := d.examples(path.Dir(f.name))
	pairs(&doc, func(key, value *yaml.Node) {
		switch key.Value {
		case "include":
			d.omit(Position{File: f.name, Line: key.Line}, "include", "other files are not read")
		case "services":
			pairs(value, func(name, _ *yaml.Node) {
				at := Position{File: f.name, Line: name.Line}
				if len(services) == maxList {
					d.omit(at, "services", "more than %d", maxList)
				}
				if len(services) <= maxList {
					services = append(services, composeService{name.Value, at, all.Services[name.Value], vars})
				}
			})
		}
	})
	services = services[:min(len(services), maxList)]
	if slices.Contains(composeNames, path.Base(f.name)) {
		for _, name := range composeOverrides {
			if o := d.at(path.Join(path.Dir(f.name), name)); o != nil {
				return merged(services, d.read(o))
			}
		}
	}
	return services
}

// merged puts the values of services over those of others.
func merged(services, over []composeService) []composeService {
	for _, o := range over {
		i := slices.IndexFunc(services, func(s composeService) bool { return s.name == o.name })
		if i < 0 {
			services = append(services, o)
			continue
		}
		services[i].raw = maps.Clone(services[i].raw)
		for key, value := range o.raw {
			switch have := services[i].raw[key].(type) {
			case []any:
				if more, ok := value.([]any); ok {
					value = append(slices.Clone(have), more...)
				}
			case map[string]any:
				if more, ok := value.(map[string]any); ok {
					both := maps.Clone(have)
					maps.Copy(both, more)
					value = both
				}
			}
			services[i].raw[key] = value
		}
	}
	return services
}

// menu takes the services of a file that no job and no dev container chooses from: not those that exclude each other.
func (d composeFiles) menu(f *file) {
	services := d.read(f)
	databases, ports := 0, map[string]int{}
	for _, s := range services {
		if s.database() {
			databases++
		}
		for _, outer := range hostPorts(s.filled(s.raw["ports"])) {
			ports[outer]++
		}
	}
	for _, s := range services {
		taken := false
		for _, outer := range hostPorts(s.filled(s.raw["ports"])) {
			taken = taken || ports[outer] > 1
		}
		if s.image() != "" && (s.database() && databases > 1 || taken) {
			d.omit(s.at, "services."+s.name, "the file has several like it, and nothing says which one the tests need")
			continue
		}
		d.service(s)
	}
}

func (s *composeService) image() string { image, _ := s.raw["image"].(string); return image }

// database reports whether a service is one of the databases of which a project uses one.
func (s *composeService) database() bool {
	names := []string{"postgres", "mysql", "mariadb", "server", "oracle-xe", "cockroach", "postgis", "timescaledb"}
	return slices.Contains(names, path.Base(imageBase(s.image())))
}

var (
	composeUp = lazyregexp.New(`^docker[ -]compose((?: -f \S+| --file \S+| --profile \S+)*) up((?: \S+)*)$`)
	dockerRun = lazyregexp.New(`^docker run( .*)$`)
)

// command takes the services that a command of a job starts.
func (d composeFiles) command(c command) {
	if dockerRun.MatchString(c.text) {
		d.dockerRun(c)
	}
	m := composeUp.FindStringSubmatch(c.text)
	if m == nil {
		return
	}
	f := (&detector{d.source, c.dir}).first(composeNames...)
	for words := strings.Fields(m[1]); len(words) > 1; words = words[2:] {
		if words[0] != "--profile" {
			f = d.at(path.Join(c.dir, words[1]))
		}
	}
	if f == nil {
		d.omit(c.at, c.text, "there is no such file")
		return
	}
	var only []string
	for w := range strings.FieldsSeq(m[2]) {
		if !strings.HasPrefix(w, "-") {
			only = append(only, w)
		}
	}
	for _, s := range d.read(f) {
		if len(only) == 0 || slices.Contains(only, s.name) {
			d.service(s)
		}
	}
}

// runOptions are options of `docker run` that have a value and do not matter.
var runOptions = strings.Fields(`-v --volume --network --net --health-cmd --health-interval --health-timeout --health-retries --restart
	--platform -h --hostname --add-host --memory -m`)

// dockerRun takes the container of `docker run -d`.
func (d composeFiles) dockerRun(c command) {
	words, err := shellwords.Parse(c.text)
	if err != nil || !slices.ContainsFunc(words, func(w string) bool { return w == "-d" || w == "--detach" || w == "-it" || w == "-dit" }) {
		return
	}
	s := Service{At: c.at}
	var vars []Var
	var ports []any
	for i := 2; i < len(words); i++ {
		name, value, inline := strings.Cut(words[i], "=")
		if !inline && i+1 < len(words) {
			value = words[i+1]
		}
		used := true
		switch name {
		case "--name":
			s.Name = value
		case "-e", "--env":
			key, v, _ := strings.Cut(value, "=")
			vars = append(vars, Var{key, v, c.at})
		case "-p", "--publish":
			ports = append(ports, value)
			s.Ports = append(s.Ports, containerPart(value))
		default:
			used = slices.Contains(runOptions, name)
		}
		switch {
		case used && !inline:
			i++
		case !used && !strings.HasPrefix(words[i], "-"):
			s.Image, s.Command = words[i], words[i+1:]
			i = len(words)
		}
	}
	s.Name = cmp.Or(s.Name, path.Base(imageBase(s.Image)))
	s.Ports = published(s.Ports, hostPorts(ports))
	s.Env = d.variablesOf(s.Name, vars)
	d.serve(s)
}

// maxExample bounds the value of a variable, which each text of a service may name many times.
const maxExample = 1000

// examples are the variables that a repository shows how to set. Its .env is the user's own and not read.
func (d composeFiles) examples(dir string) map[string]string {
	for _, n := range []string{".env.example", ".env.sample", ".env.template"} {
		if f := d.at(path.Join(dir, n)); f != nil {
			if vars, err := dotenv.UnmarshalWithLookup(withoutVariables(f.text), nil); err == nil {
				maps.DeleteFunc(vars, func(_, value string) bool { return len(value) > maxExample })
				return vars
			}
		}
	}
	return nil
}

// unset stands for a variable without a value: no text of a file contains it.
const unset = "\x00"

// maxService bounds a service of a compose file, its aliases expanded, in bytes.
const maxService = 8000

// service takes a service, alone: one that cannot be used costs no other.
func (d composeFiles) service(in composeService) {
	skip := func(format string, a ...any) { d.omit(in.at, "services."+in.name, format, a...) }
	if profiles, _ := in.raw["profiles"].([]any); len(profiles) > 0 {
		return // it does not start by itself
	}
	if in.raw["build"] != nil {
		d.built(in.raw)
		skip("it is built from the repository; the agent can build it with the sandbox's own Docker")
		return
	}
	if len(fmt.Sprint(in.raw)) > maxService {
		skip("it is larger than %d bytes", maxService)
		return
	}
	raw, _ := in.filled(in.raw).(map[string]any)
	s := Service{Name: in.name, Image: textOf(raw["image"]), Command: words(raw["command"]), At: in.at, Health: healthOf(raw["healthcheck"])}
	environment := variables(raw["environment"])
	accepts := func(text string) bool { return license.MatchString(text) }
	switch {
	case s.Image == "":
		skip("it has no image")
		return
	case len(words(raw["entrypoint"])) > 0:
		skip("a service of a sandbox has the entrypoint of its image")
		return
	case slices.ContainsFunc(s.Command, func(a string) bool { return strings.Contains(a, unset) }):
		skip("its command needs a variable that has no value")
		return
	case slices.ContainsFunc(sortedKeys(environment), accepts), slices.ContainsFunc(s.Command, accepts):
		skip("%s", reasonLicense)
		return
	}
	s.Ports = published(d.containerPorts(in), hostPorts(raw["ports"]))
	s.Env = d.variablesOf(in.name, varsOf(environment, in.at))
	if !d.volumes(&s, raw["volumes"]) {
		return
	}
	if strings.HasPrefix(textOf(raw["network_mode"]), "service:") {
		s.local()
	}
	d.serve(s)
	if unused := slices.DeleteFunc(slices.Clone(composeHost), func(key string) bool { return raw[key] == nil }); len(unused) > 0 {
		skip("not used of it, because it would reach other files or this machine: %s", strings.Join(unused, ", "))
	}
}

// filled replaces the variables in the texts of a value. A text with one that has neither value nor default becomes unset: half a text is
// no value.
func (s *composeService) filled(value any) any {
	switch value := value.(type) {
	case string:
		look := func(name string) (string, bool) { v, ok := s.vars[name]; return v, ok }
		for _, v := range template.ExtractVariables(map[string]any{"": value}, template.DefaultPattern) {
			if _, ok := look(v.Name); !ok && v.DefaultValue == "" && v.PresenceValue == "" {
				return unset
			}
		}
		text, err := template.SubstituteWithOptions(value, look, template.WithoutLogging)
		if err != nil {
			return unset
		}
		return text
	case []any:
		all := make([]any, len(value))
		for i, v := range value {
			all[i] = s.filled(v)
		}
		return all
	case map[string]any:
		all := map[string]any{}
		for k, v := range value {
			all[k] = s.filled(v)
		}
		return all
	}
	return value
}

// words are the arguments of a command: a list, or a text for a shell.
func words(value any) (all []string) {
	if text, ok := value.(string); ok {
		all, _ = shellwords.Parse(text)
		return all
	}
	list, _ := value.([]any)
	for _, v := range list {
		all = append(all, textOf(v))
	}
	return all
}

// variables reads an environment: a mapping, or a list of NAME=value. Variables without a value are the user's own.
func variables(value any) map[string]string {
	all := map[string]string{}
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			if v != nil {
				all[name] = textOf(v)
			}
		}
	case []any:
		for _, v := range value {
			if name, text, has := strings.Cut(textOf(v), "="); has {
				all[name] = text
			}
		}
	}
	return all
}

// varsOf are variables in a stable order.
func varsOf(env map[string]string, at Position) (vars []Var) {
	for _, name := range sortedKeys(env) {
		vars = append(vars, Var{name, env[name], at})
	}
	return vars
}

// volumes takes the named volumes of a service. It reports false for a service that does not start without a directory of the host.
func (d composeFiles) volumes(s *Service, value any) bool {
	list, _ := value.([]any)
	for _, v := range list {
		parts := strings.Split(textOf(v), ":")
		if long, ok := v.(map[string]any); ok {
			parts = []string{textOf(long["source"]), textOf(long["target"])}
		}
		if len(parts) < 2 || parts[0] == "" || !strings.HasPrefix(parts[1], "/") || strings.ContainsAny(parts[1], " \n") {
			continue
		}
		source, target := parts[0], parts[1]
		if !strings.ContainsAny(source[:1], "./~"+unset) {
			s.Volumes = append(s.Volumes, source+":"+target)
			continue
		}
		if mounted(s.Command, target) {
			if usualPorts[path.Base(imageBase(s.Image))] == "" {
				d.omit(s.At, "services."+s.Name, "its command needs %s, which only a directory of the host has", target)
				return false
			}
			s.Command = nil
			d.omit(s.At, "services."+s.Name+".command", "it needs %s, which only a directory of the host has", target)
		}
		d.omit(s.At, "services."+s.Name+".volumes", "directories of the host do not exist in the sandbox: %s", source)
	}
	return true
}

// mounted reports whether a command names a path below a mount.
func mounted(command []string, target string) bool {
	return slices.ContainsFunc(command, func(a string) bool { return strings.Contains(a, target) })
}

const reasonLicense = "its start accepts a license, which only you can do"

// license is in the names of variables and the arguments that accept one.
var license = lazyregexp.New(`(?i)accept[_-]?(?:eula|licen[cs]e)|licen[cs]e=accept`)

// healthOf reads a healthcheck.
func healthOf(value any) Health {
	h, _ := value.(map[string]any)
	test := words(h["test"])
	if text, ok := h["test"].(string); ok {
		test = []string{"CMD-SHELL", text}
	}
	if h["disable"] == true || len(test) < 2 || test[0] == "NONE" || strings.Contains(strings.Join(test, " "), unset) {
		return Health{}
	}
	return Health{
		Test: test, Interval: goSpan(textOf(h["interval"])), Timeout: goSpan(textOf(h["timeout"])),
		Retries: min(portOf(textOf(h["retries"])), 1000),
	}
}

// built takes the port of a service that is built here: its development server's.
func (d composeFiles) built(raw map[string]any) {
	ports, _ := raw["ports"].([]any)
	for _, p := range ports {
		if port := portOf(containerPart(fmt.Sprint(p))); port != 0 {
			d.builtPorts = append(d.builtPorts, port)
		}
	}
}

// onHost is a port as it is written with the one that leads there on the developer's machine, or on that of a workflow.
var onHost = lazyregexp.New(`^(?:(?:127\.0\.0\.1|0\.0\.0\.0):)?([0-9]+):([0-9]+(?:/(?:tcp|udp))?)$`)

// hostPorts are the ports that lead to those of a container, by the latter.
func hostPorts(value any) map[string]string {
	ports, _ := value.([]any)
	lead := map[string]string{}
	for _, p := range ports {
		text := textOf(p)
		if m, ok := p.(map[string]any); ok && m["protocol"] != "udp" {
			text = fmt.Sprintf("%v:%v", m["published"], m["target"])
		}
		if m := onHost.FindStringSubmatch(text); m != nil && portOf(m[1]) != 0 {
			lead[strings.TrimSuffix(m[2], "/tcp")] = m[1]
		}
	}
	return lead
}

// published puts in front of ports those that lead there: the tests of many projects look for their services at localhost.
func published(ports []string, lead map[string]string) (all []string) {
	for _, p := range ports {
		if outer := lead[strings.TrimSuffix(p, "/tcp")]; outer != "" {
			p = outer + ":" + p
		}
		all = append(all, p)
	}
	return all
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

// containerPorts are the ports of a service's container. The host's half may be a variable without a value.
func (d composeFiles) containerPorts(in composeService) (ports []string) {
	list := func(key string) []any { all, _ := in.raw[key].([]any); return all }
	for _, p := range append(list("ports"), list("expose")...) {
		text := containerPart(textOf(p))
		if m, ok := p.(map[string]any); ok {
			text = textOf(m["target"]) + strings.TrimSuffix("/"+textOf(m["protocol"]), "/")
		}
		text = strings.TrimSuffix(textOf(in.filled(text)), "/tcp")
		switch {
		case portOf(strings.TrimSuffix(text, "/udp")) == 0 || len(ports) == maxList:
			d.omit(in.at, "services."+in.name+".ports", "only the first %d, and no ranges: %s", maxList, textOf(p))
		case !slices.Contains(ports, text):
			ports = append(ports, text)
		}
	}
	return ports
}

package detect

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
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

// Health says when a service is ready. Test is as Docker has it: CMD and arguments, or CMD-SHELL and a text.
type Health struct {
	Test              []string
	Interval, Timeout string // of Go's form; empty means Docker's default
	Retries           int
}

// usualPorts are the ports of well-known images.
var usualPorts = map[string]string{
	"postgres": "5432", "postgis": "5432", "timescaledb": "5432", "pgvector": "5432", "mysql": "3306", "mariadb": "3306", "redis": "6379",
	"valkey": "6379", "mongo": "27017", "memcached": "11211", "rabbitmq": "5672", "elasticsearch": "9200", "opensearch": "9200",
}

var imageForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)

// passwords are variables of which an image needs one to start.
var passwords = map[string]*lazyregexp.Pattern{
	"postgres": lazyregexp.New(`^POSTGRES_(?:PASSWORD|HOST_AUTH_METHOD)`),
	"mysql":    lazyregexp.New(`^MYSQL_(?:ROOT_PASSWORD|ALLOW_EMPTY|RANDOM_ROOT)`),
	"mariadb":  lazyregexp.New(`^(?:MYSQL|MARIADB)_(?:ROOT_PASSWORD|ALLOW_EMPTY|RANDOM_ROOT)`),
}

// imageBase is an image without tag and digest.
func imageBase(image string) string {
	base, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndex(base, ":"); i > strings.LastIndex(base, "/") {
		base = base[:i]
	}
	return base
}

// port is the container's first port, as far as it is known.
func (s *Service) port() string {
	if len(s.Ports) > 0 {
		return s.Ports[0][strings.LastIndex(s.Ports[0], ":")+1:]
	}
	return cmp.Or(usualPorts[path.Base(imageBase(s.Image))], s.Name)
}

// local publishes the service's port at localhost.
func (s *Service) local() {
	port := s.port()
	if portOf(port) != 0 && !strings.Contains(port, ":") {
		s.Ports = append([]string{port + ":" + port}, s.Ports[min(1, len(s.Ports)):]...)
	}
}

// serve adds a service. One of the same name or image only adds the ports at localhost: the dev container and a job mean the same.
func (d *collector) serve(s Service) {
	if !imageForm.MatchString(s.Image) || !workorder.ValidServiceName(s.Name) || len(d.Services) >= maxList {
		d.omit(s.At, "services."+s.Name, "its image or name cannot be used")
		return
	}
	need := passwords[imageBase(s.Image)]
	if need != nil && !slices.ContainsFunc(s.Env, func(v Var) bool { return need.MatchString(v.Name) }) {
		d.omit(s.At, "services."+s.Name, "its image does not start without a password, and nothing usable gives one")
		return
	}
	accepts := func(v Var) bool { return license.MatchString(v.Name) }
	if slices.ContainsFunc(s.Env, accepts) || slices.ContainsFunc(s.Command, license.MatchString) {
		d.omit(s.At, "services."+s.Name, "%s", reasonLicense)
		return
	}
	for i, p := range s.Ports {
		outer, inner, two := strings.Cut(p, ":")
		taken := func(have Service) bool {
			return slices.ContainsFunc(have.Ports, func(h string) bool { return strings.HasPrefix(h, outer+":") })
		}
		if two && slices.ContainsFunc(d.Services, taken) {
			s.Ports[i] = inner
		}
	}
	same := func(have Service) bool {
		return have.Name == s.Name || have.At.File != s.At.File && (imageBase(have.Image) == imageBase(s.Image) || have.port() == s.port())
	}
	if i := slices.IndexFunc(d.Services, same); i >= 0 {
		have := &d.Services[i]
		if !d.reaches(have.Name) && d.reaches(s.Name) {
			have.Name = s.Name
		}
		for _, p := range s.Ports {
			_, inner, two := strings.Cut(p, ":")
			if len(have.Ports) == 0 && have.port() != inner {
				continue
			}
			if j := slices.Index(have.Ports, inner); two && j >= 0 {
				have.Ports[j] = p
			} else if two && !slices.Contains(have.Ports, p) {
				have.Ports = append(have.Ports, p)
			}
		}
		return
	}
	d.Services = append(d.Services, s)
}

// reaches reports whether a variable of the draft names a host.
func (d *collector) reaches(host string) bool {
	named := lazyregexp.New(`(?:^|[/@])` + regexp.QuoteMeta(host) + `(?:[:/]|$)`)
	return slices.ContainsFunc(d.Env, func(v Var) bool { return named.MatchString(v.Value) })
}

// variable adds one of the environment where its value is plain. The value that the host fills in may be a secret, which the user decides
// about.
func (d *collector) variable(at Position, what, name, value string) {
	if !workorder.ValidEnvName(name) {
		d.omit(at, what, "its name is not that of a variable")
		return
	}
	if len(d.Env) >= maxList || !d.plainVariable(at, what, name, value) {
		return
	}
	if !slices.ContainsFunc(d.Env, func(v Var) bool { return v.Name == name }) {
		d.Env = append(d.Env, Var{name, value, at})
	}
}

// plainVariable reports whether a variable can be used, and omits it otherwise.
func (d *collector) plainVariable(at Position, what, name, value string) bool {
	why := ""
	switch {
	case strings.Contains(value, "${"), strings.Contains(value, unset), !plainName(value), len(value) > maxText:
		why = "its value is not a plain text"
	case name == workorder.APIAnthropic.BaseURLVariable(), name == workorder.APIOpenAI.BaseURLVariable():
		why = "it names the server that gets the key of your model, which only you can"
	case yamlkeys.LooksSecret(value):
		why = reasonLooksSecret
	}
	if why != "" {
		d.omit(at, what, "%s", why)
	}
	return why == ""
}

var serviceVariable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// variablesOf returns the usable variables of a service.
func (d *collector) variablesOf(service string, vars []Var) (plain []Var) {
	for _, v := range vars {
		what := "services." + service + ".env." + v.Name
		if !serviceVariable.MatchString(v.Name) {
			d.omit(v.At, what, "its name is not that of a variable")
		} else if d.plainVariable(v.At, what, v.Name, v.Value) && len(plain) < maxList {
			plain = append(plain, v)
		}
	}
	return plain
}

// ownPlace and rooted are the names and values of variables that tell tools where they keep things: a GOPATH in an absent volume fails all
// of them.
var (
	ownPlace = lazyregexp.New(`(?:PATH|HOME|DIR|CACHE|HISTORY)$`)
	rooted   = lazyregexp.New(`^/[^/]+/.`)
	// toolPlace are variables of package managers: setup has places of its own for them.
	toolPlace = lazyregexp.New(`(?i)^` +
		among("BUNDLE GEM CARGO RUSTUP GO NPM PNPM YARN PIP UV POETRY COMPOSER MIX HEX VIRTUAL") + `_?\w*(?:PATH|HOME|DIR|CACHE|ENV)$`)
)

// placed adds a variable of the environment of a dev container or a job, unless it is about their machine.
func (d *collector) placed(at Position, name, value string) {
	what := "env." + name
	switch {
	case strings.HasPrefix(value, workorder.Workspace+"/") && !rewriting(name, value):
		d.variable(at, what, name, value)
	case ownPlace.MatchString(name) && rooted.MatchString(value), toolPlace.MatchString(name) && strings.HasPrefix(value, "/"):
		d.omit(at, what, "it is a path of another image or volume")
	case rewriting(name, value):
		d.omit(at, what, "%s", reasonExpected)
	case strings.HasSuffix(name, "EDITOR"):
		d.omit(at, what, "the sandbox does not have your editor")
	default:
		d.variable(at, what, name, value)
	}
}

var (
	secretName = lazyregexp.New(`(?i)(?:PASSWORD|PASSWD|TOKEN|SECRET|CREDENTIALS?|APIKEY|_KEY(?:_ID|_BASE)?)$|(?:^|_)(?:TOKEN|SECRET)_KEY`)
	// testValue are values that only tests can mean.
	testValue = lazyregexp.New(`(?i)^.{0,6}$|` + among(`test dummy fake example sample local secret password passwd postgres
		mysql root admin guest changeme placeholder not-?a- \b(?:0x)?0*(?:12345|00000)`))
	urlLogin = lazyregexp.New(`://[^/\s:@]*:[^@/\s]+@([^/\s:?,]+)`)
	ownHost  = lazyregexp.New(`^(?:[^.]+|127\.0\.0\.1|0\.0\.0\.0|\[.*|.*\.(?:localhost|local|test|example|example\.(?:com|org)))$`)
)

// withoutSecrets leaves variables out that are secret, unless services of the draft have the value.
func (d *collector) withoutSecrets() {
	d.Env = slices.DeleteFunc(d.Env, func(v Var) bool { return d.leavesSecret(v, d.Services) })
}

// leavesSecret omits a variable whose name, login or value says that it is secret, unless tests or services have the value.
func (d *collector) leavesSecret(v Var, services []Service) bool {
	login := urlLogin.FindStringSubmatch(v.Value)
	why := ""
	switch {
	case yamlkeys.LooksSecret(v.Value):
		why = reasonLooksSecret
	case login != nil && !ownHost.MatchString(login[1]):
		why = "its value has a login for another machine"
	case login == nil && secretName.MatchString(v.Name) && !testValue.MatchString(v.Value) && !ofService(services, v.Value):
		why = "its name says that it is a secret"
	default:
		return false
	}
	d.omit(v.At, "env."+v.Name, "%s", why)
	return true
}

const reasonLooksSecret = "its value looks like a secret"

// ofService reports whether a service has a value in its environment.
func ofService(services []Service, value string) bool {
	return slices.ContainsFunc(services, func(s Service) bool {
		return slices.ContainsFunc(s.Env, func(v Var) bool { return v.Value == value })
	})
}

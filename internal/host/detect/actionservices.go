package detect

import (
	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

type actionService struct {
	image, tag, usual string            // the input with the tag, and its default
	port              string            // the container's
	outer             string            // input with the port on the machine
	env               map[string]string // input and its default by the image's variable: user=postgres
	unless            string            // an input with which the server is set up in another way
}

// actionServices are actions that start a server in a container.
var actionServices = map[string]actionService{
	"supercharge/redis-github-action": {image: "redis", tag: "redis-version", usual: "latest", port: "6379", outer: "redis-port"},
	"supercharge/mongodb-github-action": {
		image: "mongo", tag: "mongodb-version", usual: "latest", port: "27017", outer: "mongodb-port", unless: "mongodb-replica-set",
	},
	"ikalnytskyi/action-setup-postgres": {
		image: "postgres", tag: "postgres-version", usual: "17", port: "5432", outer: "port",
		env: map[string]string{
			"POSTGRES_USER": "username=postgres", "POSTGRES_PASSWORD": "password=postgres", "POSTGRES_DB": "database=postgres",
		},
	},
	"harmon758/postgresql-action": {
		image: "postgres", tag: "postgresql version", usual: "latest", port: "5432",
		env: map[string]string{
			"POSTGRES_USER": "postgresql user=postgres", "POSTGRES_PASSWORD": "postgresql password=postgres",
			"POSTGRES_DB": "postgresql db=postgres",
		},
	},
	"mirromutt/mysql-action": {
		image: "mysql", tag: "mysql version", usual: "latest", port: "3306", outer: "host port",
		env: map[string]string{
			"MYSQL_ROOT_PASSWORD": "mysql root password=", "MYSQL_USER": "mysql user=", "MYSQL_PASSWORD": "mysql password=",
			"MYSQL_DATABASE": "mysql database=",
		},
	},
}

var inputDefault = lazyregexp.New(`^(.*)=(.*)$`)

// serveAction takes the server that an action starts beside a job, and reports whether it is known.
func (d githubActions) serveAction(j *job, uses string, at Position, with func(input, usual string) string) bool {
	a, ok := actionServices[uses]
	if !ok || a.unless != "" && with(a.unless, "") != "" {
		return false
	}
	scalar := func(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: at.Line} }
	env := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range sortedKeys(a.env) {
		m := inputDefault.FindStringSubmatch(a.env[name])
		if v := with(m[1], m[2]); v != "" {
			env.Content = append(env.Content, scalar(name), scalar(v))
		}
	}
	ports := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{scalar(with(a.outer, a.port) + ":" + a.port)}}
	service := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
		scalar("image"), scalar(a.image + ":" + with(a.tag, a.usual)), scalar("ports"), ports, scalar("env"), env,
	}}
	d.service(j, at.File, scalar(a.image), service, &scope{env: map[string]string{}})
	return true
}

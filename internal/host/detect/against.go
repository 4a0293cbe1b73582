package detect

import (
	"regexp"
	"slices"
	"strings"
)

// against says what in the jobs speaks against the convention's tests, which no job runs as they are.
func (p *plan) against(t *part, f found) string {
	others, own := false, false
	command := strings.Replace(f.command, " run ", " ", 1)
	for _, j := range p.jobs {
		if j.aside {
			continue
		}
		for _, c := range j.commands {
			if c.why == reasonRootServer && c.eco == t.eco {
				return reasonRootServer
			}
			if c.dir != t.d.dir {
				continue
			}
			if displays.MatchString(c.text) && strings.HasSuffix(strings.Replace(c.text, " run ", " ", 1), " "+command) {
				return reasonDisplay
			}
			others = others || c.kind == kindTest && c.eco != t.eco && c.eco != &makefiles && !c.narrow
			own = own || c.eco == t.eco && (c.kind.judges() && judging.MatchString(c.text) || c.kind == kindOther) ||
				c.delegates(t.eco) && (t.eco == &node || !managers.MatchString(c.text))
		}
	}
	if others && !own && !f.task {
		return reasonUnrun
	}
	return ""
}

// rootServer reports whether a step of the job starts a server as root.
func (j *job) rootServer() bool {
	return slices.ContainsFunc(j.commands, func(c step) bool { return rootServer.MatchString(c.text) && c.why != "" })
}

const (
	reasonRootServer = "a step of its job starts a server as root"
	reasonUnrun      = "no job of a pull request runs it"
)

var (
	managers = regexp.MustCompile(`^(?:npx|npm|pnpm|yarn|bunx?) `)
	judging  = regexp.MustCompile(`(?i)test|check|build|verify|spec`)
	// rootServer starts a server that the machines of pipelines have.
	rootServer = regexp.MustCompile(`^sudo (?:/etc/init\.d/|service |systemctl (?:re)?start )(?:postgres\w*|mysqld?|mariadb|mongod?|redis\S*)`)
)

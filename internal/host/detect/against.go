package detect

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// against says what in the jobs speaks against the convention's tests, which no job runs as they are.
func (p *plan) against(t *part, f found) string {
	if j, _ := p.delegate(t); p.served || j != nil && j.rootServer() {
		return reasonRootServer
	}
	others, own := false, false
	command := strings.Replace(f.command, " run ", " ", 1)
	for _, j := range p.jobs {
		if j.aside {
			continue
		}
		for _, c := range j.commands {
			if why := t.lacks(&c, command); why != "" {
				return why
			}
			if c.dir != t.d.dir {
				continue
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

// lacks says what a command of a job shows that tests need and the sandbox does not have. usual is the convention's command.
func (t *part) lacks(c *step, usual string) string {
	switch {
	case c.why == reasonRootServer && c.eco == t.eco:
		return reasonRootServer
	case c.dir != t.d.dir:
	case t.eco == &cmake && libraryTools.MatchString(c.text):
		return reasonLibraries
	case displays.MatchString(c.text) && strings.HasSuffix(strings.Replace(c.text, " run ", " ", 1), " "+usual):
		return reasonDisplay
	}
	return ""
}

// rootServer reports whether a step of the job starts or installs a server in a way that setup cannot.
func (j *job) rootServer() bool {
	return slices.ContainsFunc(j.commands, func(c step) bool {
		return c.why == reasonRoot && rootServer.MatchString(c.text) || c.why == reasonSource && serverPackage.MatchString(c.text) ||
			c.why == reasonPlain && background.MatchString(c.text) || c.why == reasonAction && serverAction.MatchString(c.text)
	})
}

const (
	reasonSource     = "its script adds a source of packages that the sandbox does not have"
	reasonRoot       = "it needs root"
	reasonLibraries  = "a job takes its libraries from a package manager that the sandbox does not have"
	reasonAction     = "the action is not known"
	reasonRootServer = "a step of its job starts a server that the sandbox does not have"
	servers          = `redis|valkey|postgres|mysql|mariadb|mongo|elasticsearch|rabbitmq|memcached|tidb|couchdb`
	reasonUnrun      = "no job of a pull request runs it"
)

var (
	managers = lazyregexp.New(`^(?:npx|npm|pnpm|yarn|bunx?) `)
	judging  = lazyregexp.New(`(?i)test|check|build|verify|spec`)
	// rootServer starts a server that the machines of pipelines have.
	serverPackage = lazyregexp.New(`\sinstall .*\b(?:` + servers + `)`)
	serverAction  = lazyregexp.New(`(?i)(?:^|[/-])(?:` + servers + `|compose-action)`)
	libraryTools  = lazyregexp.New(`^(?:\./)?(?:vcpkg(?:/vcpkg)?|conan) \w`)
	background    = lazyregexp.New(`[^&]&$`) // it starts a server for the steps after it
	rootServer    = lazyregexp.New(`^sudo (?:/etc/init\.d/|service |systemctl (?:re)?start )(?:` + servers + `)`)
)

package detect

import (
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// harms are commands that neither checks nor setup run. unless are arguments that make one harmless.
var harms = []struct {
	command, unless *lazyregexp.Pattern
	why             string
}{
	{watches, nil, reasonWatches},
	{lazyregexp.New(`^(?:while (?:true|:)|until false|tail -f|watchexec|watchman|entr|sleep infinity)|` +
		`^pytest (?:.* )?(?:-f|--looponfail)(?:\s|$)|` +
		`^(?:ava|jest|tsup|rollup|webpack|esbuild|sass|tailwindcss) (?:.* )?-w(?:\s|$)|^vitest (?:dev|watch)\b`), nil, reasonWatches},
	{lazyregexp.New(`^(?:npm|pnpm|yarn|bun)(?: run)? (?:dev|start|serve|develop|preview)(?:\s|$)|` +
		`^(?:rails s(?:erver)?|flask run|uvicorn|gunicorn|php artisan serve|php -S|python3? -m http\.server|` +
		`python3? manage\.py runserver|mix phx\.server|http-server|live-server|json-server|ngrok)(?:\s|$)`), nil, reasonServes},
	{lazyregexp.New(`(?:playwright|vitest|cypress) .*--(?:ui|headed|debug)(?:\s|$)|^cypress open|--inspect-brk|^read\s`), nil, reasonAsks},
	{publishes, lazyregexp.New(`^(?:rm|mkdir|ls|cp|mv|cat|cd|tar|unzip|chmod|touch|wget|curl|export)\s`), reasonPublishes},
	{lazyregexp.New(`^curl (?:.* )?(?:-X ?(?:POST|PUT)|-[TFd]|--(?:data|upload-file|form|request)\S*)(?:\s|$)`), nil, reasonPublishes},
	{lazyregexp.New(`^pulumi (?:up|destroy)|^lerna publish|^docker(?: buildx)? .*--push|` +
		`\s(?:\S*:)?(?:jib|dockerPush|bootBuildImage|publish\w*)(?::build)?(?:\s|$)|\s\S*jib:build`), nil, reasonPublishes},
	{rewrites, nil, reasonRewrites},
	{updates, nil, reasonRewrites},
	{lazyregexp.New(`^(?:eslint|jest|tsc|oxlint|cypress|vitest) (?:.* )?--init(?:\s|$)`), nil, reasonRewrites},
	{
		lazyregexp.New(`^(?:black|isort|cargo fmt|rustfmt|ruff format|deno fmt)(?:\s|$)`),
		lazyregexp.New(`\s(?:--check\S*|-c|--diff|--emit)(?:\s|$)`), reasonRewrites,
	},
	{
		lazyregexp.New(`^(?:vendor/bin/|\./vendor/bin/)?(?:php-cs-fixer fix|pint|mix format|dotnet format)(?:\s|$)`),
		lazyregexp.New(`\s--(?:dry-run|test|check-formatted|verify-no-changes)`), reasonRewrites,
	},
	{
		lazyregexp.New(`^(?:vendor/bin/|\./vendor/bin/)?phpcbf|^go fmt|^git (?:clean|reset)|` +
			`spotless:?[aA]pply|^rubocop .*-[aA](?:\s|$)|^rector process|` +
			`^(?:prettier|gofmt|goimports|gofumpt|shfmt) (?:\S+ )*-\w*w(?:\s|$)|^clang-format (?:\S+ )*-i(?:\s|$)|^sed (?:\S+ )*-i`),
		lazyregexp.New(`\s--dry-run`), reasonRewrites,
	},
}

const (
	reasonServes = "it serves and does not end"
	reasonAsks   = "it waits for a person"
)

// testers are programs that run tests.
var testers = `(?:^|/)` + among(`jest vitest ava tap pytest mocha go react-scripts playwright bun deno`) + `(?:\.js)?(?:\s.*)?\s`

// updates are arguments with which tests write what they expect, besides those that rewriting knows.
var updates = lazyregexp.New(testers +
	`(?:-u|--updateSnapshot|--force-regen|--inline-snapshot=\S*(?:fix|create|update)\S*)(?:\s|=true|$)`)

var (
	// prefixes stand before a command that they run.
	prefixes = lazyregexp.New(`^(?:[({@!+-]|(?:then|do|else|exec|time|env|sudo|xvfb-run|cross-env|dotenv --)(?:\s|$)|` +
		`(?:npx|pnpm exec|pnpm dlx|yarn exec|yarn dlx|bunx|bundle exec|poetry run|uv run|composer exec)(?: --?\S+)*\s+|` +
		`(?:\./)?node_modules/\.bin/|` +
		`python3? -m (?:pytest|black|isort)\b|[A-Za-z_]\w*=\S*\s)`)
	inShell = lazyregexp.New(`\b(?:ba|z|da)?sh (?:-\w+ )*-\w*c (?:"([^"]*)"|'([^']*)')`)
)

// pieces are the commands of a script, however they are joined, without what only runs them.
func pieces(content string) (all []string) {
	var b strings.Builder
	var quote rune
	for _, r := range strings.ReplaceAll(content, "\\\n", " ") {
		switch {
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case r == quote:
			quote = 0
		case quote == 0 && strings.ContainsRune(";&|\n", r):
			r = '\n'
		case r == '\n':
			r = ' '
		}
		b.WriteRune(r)
	}
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSpace(line)
		for m := prefixes.FindString(line); m != ""; m = prefixes.FindString(line) {
			if strings.HasPrefix(m, "python") {
				m = m[:strings.Index(m, "-m ")+len("-m ")]
			}
			line = strings.TrimSpace(line[len(m):])
		}
		if line != "" && line[0] != '#' {
			all = append(all, line)
		}
	}
	return all
}

// maxPieces bounds the commands that one command reaches.
const maxPieces = 200

// harm says why a command must not run, by what it is and by what it runs; empty if nothing is known against it.
func (d *detector) harm(content string) string { return d.harmOf(content, map[string]bool{}) }

func (d *detector) harmOf(content string, seen map[string]bool) string {
	content = strings.NewReplacer("$(MAKE)", "make", "${MAKE}", "make").Replace(content)
	for _, m := range inShell.FindAllStringSubmatch(content, maxList) {
		if why := d.harmOf(m[1]+m[2], seen); why != "" {
			return why
		}
	}
	if setsRewriting(content) {
		return reasonRewrites
	}
	for _, c := range pieces(content) {
		if seen[c] || len(seen) == maxPieces || placeholder.MatchString(c) || nothing.MatchString(c) {
			continue
		}
		seen[c] = true
		plain := releaseFlag.ReplaceAllString(quoted.ReplaceAllString(c, "Q"), " ")
		if tester.MatchString(plain) && writesExpected(plain) {
			return reasonRewrites + ": " + c
		}
		for _, h := range harms {
			if h.command.MatchString(plain) && (h.unless == nil || !h.unless.MatchString(plain)) {
				return h.why + ": " + c
			}
		}
		for _, inner := range d.reached(c) {
			if why := d.harmOf(inner, seen); why != "" {
				return why
			}
		}
	}
	return ""
}

// clientPackages have the programs that reach databases, which the machines of pipelines have.
var clientPackages = []struct {
	program *lazyregexp.Pattern
	name    string
}{
	{lazyregexp.New(`^(?:psql|createdb|dropdb|pg_dump|pg_isready)(?:\s|$)`), "postgresql-client"},
	{lazyregexp.New(`^(?:mysql|mysqladmin|mysqldump)(?:\s|$)`), "default-mysql-client"},
	{lazyregexp.New(`^redis-cli(?:\s|$)`), "redis-tools"},
	{lazyregexp.New(`^sqlite3(?:\s|$)`), "sqlite3"},
	{lazyregexp.New(`^jq(?:\s|$)`), "jq"},
}

// clients are the packages of the programs that commands run.
func clients(commands map[string]bool) (packages []string) {
	for _, p := range clientPackages {
		if slices.ContainsFunc(sortedKeys(commands), p.program.MatchString) {
			packages = append(packages, p.name)
		}
	}
	return packages
}

// runs reports whether a command runs the script of another one, by itself or by others.
func (d *detector) runs(command, other string, depth int) bool {
	script, _, _ := nodeTask(d, other)
	return slices.ContainsFunc(d.reached(command), func(content string) bool {
		return slices.ContainsFunc(pieces(content), func(c string) bool {
			name, _, ok := nodeTask(d, c)
			return ok && (name == script || depth < maxTaskDepth && d.runs(c, other, depth+1))
		})
	})
}

var (
	shellFile = lazyregexp.New(`^(?:(?:ba|z|da)?sh (?:-\w+ )*|\. |source )?(?:\./)?([\w./-]+)(?:\s|$)`)
	runners   = lazyregexp.New(`^(?:npm-run-all2?|run-s|run-p|concurrently|wireit|bun run|pnpm run)\s`)
	scriptArg = lazyregexp.New(`^(?:(?:npm|pnpm|yarn|bun):)?([\w.:*/-]+)$`)
)

// wrappers are scripts of build tools, which install one and run it.
var wrappers = []string{"mvnw", "gradlew"}

// handed are the arguments that a task hands to its last command.
func handed(command, name string) string {
	_, args, _ := strings.Cut(command, name)
	return strings.Replace(args, " -- ", " ", 1)
}

// reached are the scripts that a command runs: tasks with what runs before and after them, and files of the repository.
func (d *detector) reached(command string) (all []string) {
	for _, eco := range ecosystems() {
		task := eco.hooks().task
		if task == nil {
			continue
		}
		name, content, ok := task(d, command)
		if !ok {
			continue
		}
		all = append(all, strings.TrimSpace(content)+handed(command, name))
		if eco == &node {
			all = append(all, d.manifest().Scripts["pre"+name], d.manifest().Scripts["post"+name])
		}
	}
	words := strings.Fields(command)
	switch {
	case words[0] == "make":
		for _, goal := range words[1:] {
			content, _ := recipe(d, goal, 0)
			all = append(all, content)
		}
	case runners.MatchString(command):
		scripts := d.manifest().Scripts
		for _, m := range quoted.FindAllString(command, maxList) {
			all = append(all, strings.Trim(m, `"'`))
		}
		for _, w := range words[1:] {
			m := scriptArg.FindStringSubmatch(strings.Trim(w, `"'`))
			if m == nil {
				continue
			}
			pattern := strings.NewReplacer(":", "/", "**", "*").Replace(m[1])
			for _, name := range sortedKeys(scripts) {
				if ok, _ := path.Match(pattern, strings.ReplaceAll(name, ":", "/")); ok {
					all = append(all, "npm run "+name)
				}
			}
		}
	}
	if _, content, ok := shellTask(d, command); ok {
		all = append(all, content)
	}
	return all
}

// shellTask finds the script of the repository that a command runs.
func shellTask(d *detector, text string) (name, content string, ok bool) {
	m := shellFile.FindStringSubmatch(text)
	if m == nil || !strings.ContainsAny(text, "/.") || slices.Contains(wrappers, path.Base(m[1])) {
		return "", "", false
	}
	f := d.open(m[1])
	if f == nil || !strings.HasSuffix(m[1], ".sh") && !shebang.MatchString(f.text) {
		return "", "", false
	}
	return strings.TrimSuffix(path.Base(m[1]), ".sh"), f.text, true
}

var shebang = lazyregexp.New(`^#!\S*(?:/env )?\s?\S*sh\b`)

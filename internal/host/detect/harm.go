package detect

import (
	"regexp"
	"strings"
)

// harms are commands that neither checks nor setup run. unless are arguments that make one harmless.
var harms = []struct {
	command, unless *regexp.Regexp
	why             string
}{
	{watches, nil, reasonWatches},
	{regexp.MustCompile(`^(?:while (?:true|:)|until false|tail -f|watchexec|watchman|entr|sleep infinity)|` +
		`^pytest (?:.* )?(?:-f|--looponfail)(?:\s|$)|^(?:ava|jest|tsup|rollup|webpack|esbuild|sass|tailwindcss) (?:.* )?-w(?:\s|$)|^vitest (?:dev|watch)\b`), nil, reasonWatches},
	{regexp.MustCompile(`^(?:npm|pnpm|yarn|bun)(?: run)? (?:dev|start|serve|develop|preview)(?:\s|$)|` +
		`^(?:rails s(?:erver)?|flask run|uvicorn|gunicorn|php artisan serve|php -S|python3? -m http\.server|` +
		`python3? manage\.py runserver|mix phx\.server|http-server|live-server|json-server|ngrok)(?:\s|$)`), nil, reasonServes},
	{regexp.MustCompile(`(?:playwright|vitest|cypress) .*--(?:ui|headed|debug)(?:\s|$)|^cypress open|--inspect-brk|^read\s`), nil, reasonAsks},
	{publishes, nil, reasonPublishes},
	{regexp.MustCompile(`^pulumi (?:up|destroy)|^lerna publish|^docker(?: buildx)? .*--push`), nil, reasonPublishes},
	{rewrites, nil, reasonRewrites},
	{updates, nil, reasonRewrites},
	{
		regexp.MustCompile(`^(?:black|isort|cargo fmt|rustfmt|ruff format|deno fmt)(?:\s|$)`),
		regexp.MustCompile(`\s(?:--check\S*|-c|--diff|--emit)(?:\s|$)`), reasonRewrites,
	},
	{
		regexp.MustCompile(`^(?:vendor/bin/|\./vendor/bin/)?(?:php-cs-fixer fix|pint|mix format|dotnet format)(?:\s|$)`),
		regexp.MustCompile(`\s--(?:dry-run|test|check-formatted|verify-no-changes)`), reasonRewrites,
	},
	{
		regexp.MustCompile(`^(?:vendor/bin/|\./vendor/bin/)?phpcbf|^go fmt|^git (?:clean|reset)|spotless:?[aA]pply|^rubocop .*-[aA](?:\s|$)|^rector process|` +
			`^(?:prettier|gofmt|goimports|gofumpt|shfmt) (?:\S+ )*-\w*w(?:\s|$)|^clang-format (?:\S+ )*-i(?:\s|$)|^sed (?:\S+ )*-i`),
		regexp.MustCompile(`\s--dry-run`), reasonRewrites,
	},
}

const (
	reasonServes = "it serves and does not end"
	reasonAsks   = "it waits for a person"
)

// updates are arguments with which tests write what they expect.
var updates = regexp.MustCompile(`(?:^|/)` + among(`jest vitest ava tap pytest mocha go react-scripts playwright bun`) +
	`(?:\.js)?(?:\s.*)?\s` +
	`(?:-u|--?update(?:-?[sS]napshots?)?|--snapshot-update|--force-regen|--inline-snapshot=\S*(?:fix|create|update)\S*)(?:\s|=true|$)`)

var (
	// prefixes stand before a command that they run.
	prefixes = regexp.MustCompile(`^(?:[({@!+-]|(?:then|do|else|exec|time|env|sudo|xvfb-run|cross-env|dotenv --)(?:\s|$)|` +
		`(?:npx|pnpm exec|pnpm dlx|yarn exec|yarn dlx|bunx|bundle exec|poetry run|uv run|composer exec)(?: --?\S+)*\s+|(?:\./)?node_modules/\.bin/|` +
		`python3? -m (?:pytest|black|isort)\b|[A-Za-z_]\w*=\S*\s)`)
	inShell = regexp.MustCompile(`\b(?:ba|z|da)?sh (?:-\w+ )*-\w*c (?:"([^"]*)"|'([^']*)')`)
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

// harm says why a command must not run, by what it is and by what it runs; empty if nothing is known against it.
func (d *detector) harm(content string, depth int) string {
	for _, m := range inShell.FindAllStringSubmatch(content, maxList) {
		if why := d.harm(m[1]+m[2], depth+1); why != "" {
			return why
		}
	}
	for _, c := range pieces(content) {
		plain := strings.TrimSpace(releaseFlag.ReplaceAllString(quoted.ReplaceAllString(c, "Q"), " ") + " ")
		if placeholder.MatchString(c) || strings.HasPrefix(c, "printf ") || nothing.MatchString(c) {
			continue
		}
		for _, h := range harms {
			if h.command.MatchString(plain) && (h.unless == nil || !h.unless.MatchString(plain)) {
				return h.why + ": " + c
			}
		}
	}
	return ""
}

package detect

import (
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// command is one simple command of a script.
type command struct {
	text    string // without the directory and the variables before it
	dir     string // in the repository
	env     []Var
	at      Position
	line    string // that it is a part of
	after   string // what stands between it and the command before it on its line: && or ;
	complex bool   // it is more than one program with its words
}

var (
	changeDir = lazyregexp.New(`^(?:cd|pushd)\s+"?([^\s"]+)"?$`)
	assigned  = lazyregexp.New(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=("[^"$\x60\\]*"|'[^']*'|[^\s"'$\x60;|&<>()]*)(?:\s+|$)`)
	ands      = lazyregexp.New(`\s*(?:&&|;(?:\s|$))\s*`)
	compound  = lazyregexp.New(`(?m)(?:^|[;&|])\s*(?:if|for|while|until|case|function|select|\{)\s|^\s*\w+\s*\(\)|<<-?\s*['"]?\w`)
	// guard begins a line whose later commands run only where the first one succeeds.
	guard = lazyregexp.New(`^(?:!|\[\[?|` + among(`test which type hash diff cmp ls cat false`) + `|command -v|grep -\w*q\w*|` +
		`git (?:diff|status|log|rev-parse|ls-files|show-ref))\s.*(?:&&|\|\|)`)
	subshell  = lazyregexp.New(`^\(([^()]*)\)$`)
	shellOnly = lazyregexp.New("[|;&<>`$\\\\()]") // the line is more than a program and its words
)

// script splits a shell script into simple commands. The lines of a script share the directory and exported variables.
func script(content, dir string, at Position) (all []command) {
	if compound.MatchString(content) {
		return []command{{text: strings.TrimSpace(content), dir: dir, at: at, complex: true}}
	}
	var exported []Var
	for line := range strings.Lines(strings.ReplaceAll(content, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if m := subshell.FindStringSubmatch(line); m != nil {
			all = append(all, script(m[1], dir, at)...)
			continue
		}
		parts, joints := ands.Split(line, -1), ands.FindAllString(line, -1)
		open := func(p string) bool { return strings.Count(p, `"`)%2+strings.Count(p, `'`)%2 > 0 }
		if strings.HasPrefix(line, "(") || slices.ContainsFunc(parts, open) {
			parts = []string{line}
		}
		if guard.MatchString(line) || strings.Contains(inQuotes.ReplaceAllString(line, ""), "||") {
			all = append(all, command{text: line, dir: dir, env: slices.Clone(exported), at: at, complex: true})
			continue
		}
		first := len(all)
		for i, part := range parts {
			if m := changeDir.FindStringSubmatch(part); m != nil {
				dir = within(dir, m[1])
				continue
			}
			env := slices.Clone(exported)
			for m := assigned.FindStringSubmatch(part); m != nil; m = assigned.FindStringSubmatch(part) {
				env = append(env, Var{m[1], strings.Trim(m[2], `"'`), at})
				part = part[len(m[0]):]
			}
			if part == "" {
				exported = env
				continue
			}
			c := command{text: part, dir: dir, env: env, at: at, line: line}
			if len(all) > first {
				c.after = strings.TrimSpace(joints[i-1])
			}
			all = append(all, c)
		}
	}
	return all
}

// within returns a directory that a command changes to, as a path in the repository.
func within(dir, to string) string {
	if below, ok := strings.CutPrefix(to+"/", workorder.Workspace+"/"); ok {
		return path.Clean(below)
	}
	return path.Join(dir, to)
}

// kind says what a command is for. Those that judge are the beginnings of the checks' names.
type kind string

const (
	kindTest      kind = "test"
	kindVet       kind = "vet"
	kindLint      kind = "lint"
	kindTypecheck kind = "typecheck"
	kindFormat    kind = "format"
	kindCheck     kind = "check"
	kindBuild     kind = "build"

	kindInstall       kind = "install" // of dependencies: the ecosystem's own does the same
	kindPrepare       kind = "prepare" // between the install and the checks
	kindNothing       kind = "nothing" // without an effect on checks
	kindOther         kind = "other"   // runs the checks in a way that the sandbox has not
	kindRefused       kind = "refused" // must not run
	kindUnknown       kind = ""
	checkKinds             = "test vet lint typecheck format check build"
	maxTaskDepth           = 3
	reasonUnknown          = "it is not a command that is known"
	reasonRewrites         = "it changes files"
	reasonWatches          = "it watches files and does not end"
	reasonPublishes        = "it may publish, deploy or release"
	reasonSkips            = "it skips the tests"
	reasonMissing          = "nothing in the repository installs it"
	reasonPlaceholder      = "it tests nothing, or cannot fail"
	reasonPlain            = "it is more than one plain command"
	reasonDisplay          = "it needs a display, which the sandbox does not have"
)

// judges reports whether commands of a kind are checks.
func (k kind) judges() bool { return k != "" && slices.Contains(strings.Fields(checkKinds), string(k)) }

// rule describes a command by its first words, its ecosystem's launchers left out.
type rule struct {
	words string
	kind  kind
	only  *lazyregexp.Pattern // arguments without which it is another command
	// whole are arguments without which a check covers only a part, and narrow are arguments that restrict it to one.
	whole, narrow *lazyregexp.Pattern
	// must are arguments without which the command changes files, and writes are arguments that make it do so.
	must, writes *lazyregexp.Pattern
	drop         *lazyregexp.Pattern // arguments that the sandbox must not have
	add          string              // argument that keeps the command from changing files
	needs        string              // program that the repository has to install
	packages     []string            // of the distribution, that the command needs
	why          string              // reason for kindOther and kindRefused
}

// verdict is what is known of a command.
type verdict struct {
	eco      *ecosystem
	kind     kind
	narrow   bool
	command  string // as the sandbox runs it
	tool     string // its program, for the names of further checks of a kind
	task     bool   // it runs a named task
	tests    bool   // the task runs tests, too
	packages []string
	why      string // for what is not used
}

// ecosystem is a kind of project.
type ecosystem struct {
	name  string
	files []string // manifests, as patterns of path.Match
	rules []rule
	// launchers are words before a program of the ecosystem, such as bundle exec.
	launchers *lazyregexp.Pattern
	tools     string // that it needs, besides the one of its name
}

// uses reports whether projects of an ecosystem need a tool.
func (e *ecosystem) uses(tool string) bool {
	return slices.Contains(strings.Fields(e.name+" "+e.tools), tool)
}

// hooks are the functions of an ecosystem. They are apart from its table, to which they refer.
type hooks struct {
	// read adds what the convention says of a directory.
	read func(d *detector, p *part)
	// installed reports whether the repository installs a program; nil means all of the rules.
	installed func(d *detector, program string) bool
	// run writes a command the way setup's environment needs it; nil means as it is.
	run func(d *detector, launcher, command string) string
	// task finds a command by name, such as a script of package.json.
	task func(d *detector, text string) (name, content string, ok bool)
}

func (e *ecosystem) hooks() hooks {
	switch e {
	case &node:
		return hooks{readNode, nodeHas, nil, nodeTask}
	case &deno:
		return hooks{read: readDeno, task: denoTask}
	case &golang:
		return hooks{read: readGo}
	case &python:
		return hooks{readPython, pythonHas, runPython, nil}
	case &rust:
		return hooks{read: readRust}
	case &maven:
		return hooks{read: readMaven, run: runWrapped}
	case &gradle:
		return hooks{read: readGradle, run: runWrapped}
	case &ruby:
		return hooks{readRuby, rubyHas, runRuby, nil}
	case &php:
		return hooks{readPHP, phpHas, runPHP, composerTask}
	case &elixir:
		return hooks{read: readElixir, installed: elixirHas}
	case &cmake:
		return hooks{read: readCMake}
	case &dotnet:
		return hooks{read: func(*detector, *part) {}}
	}
	return hooks{read: readMakefile, task: makeTask}
}

var (
	inQuotes  = lazyregexp.New("\"[^\"$`]*\"|'[^']*'")
	quoted    = lazyregexp.New(`"[^"]*"|'[^']*'`)
	publishes = lazyregexp.New(`(?i)(?:^|[\s:_/.-])` +
		among(`publish deploy release upload push login goreleaser twine semantic-release rsync
		scp ssh kubectl helm terraform vercel netlify firebase heroku flyctl wrangler aws gcloud codecov coveralls`) + `(?:$|[\s:_/-])|` +
		`^(?:gh|git (?:commit|tag|merge|rebase|checkout|clone)) `)
	releaseFlag = lazyregexp.New(`(?i)\bmigrate deploy\b|/etc/[\w-]*release\b|\blsb_release\b|` +
		`\s--?[\w-]*release[\w-]*(?:[= ]\S+)?|\sassembleRelease\S*`)
	skipsTests = lazyregexp.New(`(?i)-D(?:maven\.test\.skip|skip(?:Tests|ITs|UTs)?|surefire\.skip\w*|skip\.\w*tests?)(?:=true)?` +
		`(?:\s|$)|\s-x\s+(?:test|check)\b|--skip-tests?\b|\s--(?:collect-only|co|list-tests|listTests|list)(?:\s|$)|` +
		`^go test (?:.* )?--?(?:test\.)?(?:list|n)\b`)
	nothing = lazyregexp.New(`^(?:` + among(`echo printf set true : \. source ls pwd which cat env date sleep df free uname`) +
		`|git (?:config|fetch|log|status|version|diff)|docker (?:ps|version|info|images|logs|pull)|` +
		`corepack|nvm|pre-commit install|npm (?:config|i(?:nstall)? (?:-g|--global|-fg)|audit|ls)|` +
		`\S+(?: \w+)? (?:--version|-V|version)$)(?:\s|$)`)
	watches = lazyregexp.New(`--watch(?:All)?(?:\s|$|=true)|\bnodemon\b|(?:^|\s)watch(?:\s|$)|` +
		`^(?:tsc|mocha|vitest) (?:.* )?-w(?:\s|$)`)
	rewrites = lazyregexp.New(`\s(?:--fix(?:-only|-type\S*|=\S*)?|--write|--auto-?correct\S*|--apply(?:-unsafe)?|` +
		`--add-noqa|--suppress-all|--(?:generate|set)-baseline\S*|--auto-gen-config)(?:\s|$)`)
	displays    = lazyregexp.New(`^xvfb-run(?: --?\S+| "[^"]*")* `)
	placeholder = lazyregexp.New(`^(?:echo|printf|exit|(?:/(?:usr/)?bin/)?true|:)(?:\s|$)`)
	unitOnly    = lazyregexp.New(`(?i)\bunit`)
)

// missing are programs that pipelines install by actions or scripts, and that setup has no short way to install.
var missing = lazyregexp.New(`(?:^|[\s;&(@/])(` +
	among(`golangci-lint staticcheck gotestsum ginkgo buf pre-commit tox nox hadolint actionlint act
	bazel bazelisk buck2 just task mage earthly nix kind minikube cross cargo-hack cargo-nextest reuse
	markdownlint markdownlint-cli2 vale lychee 	docker-compose docker`) + `)(?:\s|$)`)

// classify finds what a command is for. d is the detector of its directory.
func (d *detector) classify(text string, depth int) verdict {
	v := d.byWords(text, depth)
	if depth == 0 && (v.kind.judges() || v.kind == kindPrepare) {
		runs := map[string]bool{}
		if why := d.harmOf(text, runs); why != "" {
			v.refuse(why)
		}
		v.packages = append(slices.Clip(v.packages), clients(runs)...)
	}
	return v
}

func (d *detector) byWords(text string, depth int) verdict {
	text = strings.Replace(text, "cargo +stable ", "cargo ", 1)
	stripped := releaseFlag.ReplaceAllString(text, " ")
	switch {
	case watches.MatchString(text):
		return verdict{kind: kindRefused, why: reasonWatches}
	case displays.MatchString(text):
		return verdict{kind: kindOther, why: reasonDisplay}
	case skipsTests.MatchString(text):
		return verdict{kind: kindRefused, why: reasonSkips}
	case publishes.MatchString(quoted.ReplaceAllString(stripped, "")), strings.Contains(text, "-DperformRelease"):
		return verdict{kind: kindRefused, why: reasonPublishes}
	case generates(d, text):
		return verdict{kind: kindPrepare, command: text}
	case nothing.MatchString(text):
		return verdict{kind: kindNothing}
	case idles(text):
		return verdict{kind: kindRefused, why: reasonPlaceholder}
	case shellOnly.MatchString(inQuotes.ReplaceAllString(text, "")):
		return verdict{why: reasonPlain}
	}
	if v, ok := indirect(d, text, depth); ok {
		return v
	}
	for _, eco := range ecosystems() {
		if task := eco.hooks().task; task != nil {
			if name, content, ok := task(d, text); ok {
				return d.task(eco, text, name, content, depth)
			}
		}
		launchers := []string{""}
		if eco.launchers != nil {
			launchers = append(launchers, eco.launchers.FindString(text))
		}
		for i := range eco.rules {
			r := &eco.rules[i]
			for _, launcher := range launchers {
				rest := text[len(launcher):]
				args, ok := strings.CutPrefix(rest, r.words)
				if m := pythonScript.FindString(rest); !ok && m != "" && strings.Contains(r.words, ".py") { // in a directory
					args, ok = strings.CutPrefix(rest[len(m):], r.words)
				}
				if ok && (args == "" || args[0] == ' ') && (r.only == nil || r.only.MatchString(args)) {
					return d.ruled(eco, r, launcher, rest, args)
				}
			}
		}
	}
	if prepares(d, text) {
		return verdict{kind: kindPrepare, command: strings.TrimSuffix(plainDir.ReplaceAllString(text, "mkdir -p "), " --with-deps")}
	}
	if m := missing.FindStringSubmatch(text); m != nil {
		return verdict{kind: kindOther, why: m[1] + " is not in the sandbox"}
	}
	return verdict{why: reasonUnknown}
}

// pythonScript is the directory of a script of Python.
var pythonScript = lazyregexp.New(`^(?:[\w.-]+/)+`)

// ruled applies the rule of a command.
func (d *detector) ruled(eco *ecosystem, r *rule, launcher, rest, args string) verdict {
	hooks := eco.hooks()
	matches := func(re *lazyregexp.Pattern) bool { return re != nil && re.MatchString(args) }
	v := verdict{eco: eco, kind: r.kind, command: launcher + rest, packages: r.packages, why: r.why, tool: toolOf(r.words)}
	switch {
	case r.must != nil && !matches(r.must), matches(r.writes), r.kind.judges() && rewrites.MatchString(args),
		r.kind.judges() && eco != &maven && writesExpected(args): // Maven's --update-snapshots is about dependencies
		return verdict{kind: kindRefused, why: reasonRewrites}
	case r.kind.judges() && watches.MatchString(args):
		return verdict{kind: kindRefused, why: reasonWatches}
	case r.needs != "" && hooks.installed != nil && !hooks.installed(d, r.needs):
		return verdict{kind: kindOther, why: r.needs + ": " + reasonMissing}
	}
	v.narrow = r.whole != nil && !matches(r.whole) || matches(r.narrow)
	if matches(r.drop) {
		rest = r.words + r.drop.ReplaceAllString(args, "")
		v.command = launcher + rest
	}
	if r.add != "" && !strings.Contains(args, strings.TrimSpace(r.add)) {
		rest = r.words + r.add + args
		v.command = launcher + rest
	}
	if hooks.run != nil {
		v.command = hooks.run(d, launcher, rest)
	}
	return v
}

// toolOf is the program of a rule as a part of a check's name.
func toolOf(words string) string {
	first, _, _ := strings.Cut(words, " ")
	return shortName(path.Base(first))
}

// among matches one of several words.
func among(words string) string { return "(?:" + strings.Join(strings.Fields(words), "|") + ")" }

// preparing are commands that a pipeline runs between the install and the checks.
var preparing = lazyregexp.New(`^(?:mkdir (?:-p )?[\w./ -]+$|cp (?:-\w+ )?[\w./*-]+ [\w./-]+$|` +
	`(?:npx|pnpm(?: exec)?|yarn|bunx) (?:(?:playwright|cypress) install|` +
	`prisma (?:generate|migrate deploy|db push)|drizzle-kit (?:migrate|push))|` +
	`(?:psql|createdb|mysql|mysqladmin|redis-cli) |(?:bundle exec )?(?:\./)?(?:bin/)?(?:rails|rake) db:|` +
	`php artisan (?:migrate|key:generate|db:seed)|mix ecto\.|git submodule (?:update|sync|init))`)

// plainDir makes a directory, which a kept setup may have already.
var plainDir = lazyregexp.New(`^mkdir (?:-p )?`)

var copies = lazyregexp.New(`^cp (?:-\w+ )?([\w./-]+?)(?:/\*)? `)

var generated = lazyregexp.New("^(?:cat|echo|envsubst|jq|printf|sed)(?: [^|;&<>`$\\\\()]*)? > ([\\w./-]+)$")

// generates reports whether a command only writes a file that the repository does not have.
func generates(d *detector, text string) bool {
	m := generated.FindStringSubmatch(inQuotes.ReplaceAllString(text, "Q"))
	return m != nil && !strings.HasPrefix(m[1], "/") && !strings.Contains(m[1], "..") && !d.has(m[1])
}

// prepares reports whether a command prepares the checks, and can.
func prepares(d *detector, text string) bool {
	if m := copies.FindStringSubmatch(text); m != nil && !d.has(m[1]) && !d.isDir(path.Join(d.dir, m[1])) {
		return false
	}
	return preparing.MatchString(text)
}

package detect

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var node = ecosystem{
	name: "npm", files: []string{"package.json"}, tools: "node pnpm yarn bun",
	launchers: lazyregexp.New(`^(?:npx(?: --?[a-z-]+)*|(?:pnpm|yarn)(?: exec| dlx)?|bunx|bun x|npm exec(?: --)?|` +
		`\./node_modules/\.bin/)\s*`),
	rules: []rule{
		{words: "vitest", kind: kindTest, narrow: nodePart, needs: "vitest"},
		{words: "jest", kind: kindTest, narrow: nodePart, needs: "jest"},
		{words: "mocha", kind: kindTest, narrow: nodePart, needs: "mocha"},
		{words: "ava", kind: kindTest, narrow: nodePart, needs: "ava"},
		{words: "node --test", kind: kindTest, narrow: nodePart},
		{words: "bun test", kind: kindTest, narrow: nodePart},
		{words: "eslint", kind: kindLint, needs: "eslint"},
		{words: "xo", kind: kindLint, needs: "xo"},
		{words: "standard", kind: kindLint, needs: "standard"},
		{words: "oxlint", kind: kindLint, needs: "oxlint"},
		{words: "biome ci", kind: kindLint, needs: biome},
		{words: "biome check", kind: kindLint, needs: biome},
		{words: "biome lint", kind: kindLint, needs: biome},
		{words: "biome format", kind: kindFormat, needs: biome},
		{words: "prettier", kind: kindFormat, must: lazyregexp.New(`\s(?:--check|-c|--list-different|-l)(?:\s|$)`), needs: "prettier"},
		{words: "tsc", kind: kindTypecheck, must: lazyregexp.New(`\s--noEmit(?:\s|$)`), needs: "typescript"},
		{words: "npm ci", kind: kindInstall},
		{words: "npm install", kind: kindInstall},
		{words: "npm i", kind: kindInstall},
		{words: "pnpm install", kind: kindInstall},
		{words: "pnpm i", kind: kindInstall},
		{words: "yarn install", kind: kindInstall},
		{words: "yarn", kind: kindInstall, only: lazyregexp.New(`^(?: --(?:frozen-lockfile|immutable))*$`)},
		{words: "bun install", kind: kindInstall},
		{words: "bun i", kind: kindInstall},
	},
}

// nodePart are arguments that select some of the tests.
var nodePart = lazyregexp.New(`\s` +
	among("bench -t -g -f --grep --testNamePattern --testPathPattern --project --test-name-pattern --typecheck.only") + `(?:[= ]|$)|` +
	`\s[\w./*-]*(?:unit|e2e|integration)[\w./*-]*`)

type packageJSON struct {
	Scripts         map[string]string `json:"scripts"`
	Dependencies    map[string]any    `json:"dependencies"`
	DevDependencies map[string]any    `json:"devDependencies"`
	PackageManager  string            `json:"packageManager"` // such as pnpm@9.1.0+sha512.…
	Engines         any               `json:"engines"`        // by tool; old packages have a list
	Volta           any               `json:"volta"`
	Workspaces      json.RawMessage   `json:"workspaces"`
}

func (p *packageJSON) depends(name string) bool {
	return p.Dependencies[name] != nil || p.DevDependencies[name] != nil
}

// brings reports whether a dependency may bring a program.
func (p *packageJSON) brings(program string) bool {
	return slices.ContainsFunc(append(sortedKeys(p.Dependencies), sortedKeys(p.DevDependencies)...), func(name string) bool {
		return strings.HasPrefix(path.Base(name), program)
	})
}

func nodeHas(d *detector, program string) bool {
	return d.manifest().depends(program) || slices.Contains(d.programs, program)
}

// manifest returns the directory's package.json; an empty one if it is absent or invalid.
func (d *detector) manifest() *packageJSON {
	var p packageJSON
	if f := d.open("package.json"); f != nil {
		if err := json.Unmarshal([]byte(f.text), &p); err != nil {
			d.omit(Position{File: f.name}, f.name, "%v", err)
			return &packageJSON{}
		}
	}
	return &p
}

var (
	scriptForm = lazyregexp.New(`^(?:npm|pnpm|yarn|bun)(?: run| run-script)?(?: (?:-s|--silent|--if-present))*` +
		` ([A-Za-z0-9:_.-]+)(?:\s+--?.*)?$`)
	// ownCommand is a command of a package manager, whatever scripts have its name.
	ownCommand = lazyregexp.New(`^(?:npm|pnpm|yarn|bun) (?:` +
		among("add audit cache ci config dedupe exec i init install link pack publish up update version why x") + `)(?:\s|$)`)
	managerField = lazyregexp.New(`^(npm|pnpm|yarn|bun)@([0-9][0-9A-Za-z.-]*)`)
	memberForm   = lazyregexp.New(`^[A-Za-z0-9._@/-]+$`)
)

// nodeTask finds the script of package.json that a command runs.
func nodeTask(d *detector, text string) (name, content string, ok bool) {
	m := scriptForm.FindStringSubmatch(text)
	if m == nil || ownCommand.MatchString(text) {
		return "", "", false
	}
	content, ok = d.manifest().Scripts[m[1]]
	return m[1], content, ok
}

type nodeManager struct{ lock, name, install, version string }

// nodeManagers are the package managers by lock file. The version is that of today's lock files.
var nodeManagers = []nodeManager{
	{"pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile", "10"},
	{"yarn.lock", "yarn", "yarn install --frozen-lockfile", "1"},
	{"bun.lock", "bun", "bun install --frozen-lockfile", "1"},
	{"bun.lockb", "bun", "bun install --frozen-lockfile", "1"},
	{"package-lock.json", "npm", "npm ci", ""},
	{"npm-shrinkwrap.json", "npm", "npm ci", ""},
	{"package.json", "npm", "npm install --no-package-lock", ""},
}

// nodeFiles reads the files of Node and its package managers.
type nodeFiles struct{ *detector }

// manager chooses the package manager by its lock file: of several, that of package.json's packageManager, otherwise the one that the jobs
// run.
func (d nodeFiles) manager(m *packageJSON) nodeManager {
	var all []nodeManager
	for _, manager := range nodeManagers[:len(nodeManagers)-1] {
		if d.has(manager.lock) && !slices.ContainsFunc(all, func(o nodeManager) bool { return o.name == manager.name }) {
			all = append(all, manager)
		}
	}
	named, why := managerField.FindStringSubmatch(m.PackageManager), "nothing says which lock file counts"
	var run []string
	for _, j := range d.jobs {
		for _, c := range j.commands {
			if program, _, _ := strings.Cut(c.text, " "); !j.aside && c.dir == d.dir && !slices.Contains(run, program) {
				run = append(run, program)
			}
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(o nodeManager) bool { return !slices.Contains(run, o.name) })
	switch {
	case len(all) == 0:
		return nodeManagers[len(nodeManagers)-1]
	case named != nil && slices.ContainsFunc(all, func(o nodeManager) bool { return o.name == named[1] }):
		chosen, why = slices.DeleteFunc(slices.Clone(all), func(o nodeManager) bool { return o.name != named[1] }), "package.json names it"
	case len(chosen) == 1:
		why = "the jobs run it"
	default:
		chosen = all
	}
	for _, o := range all {
		if o != chosen[0] {
			d.omit(d.whole(o.lock), o.lock, "setup uses %s (%s): %s", chosen[0].name, chosen[0].lock, why)
		}
	}
	return chosen[0]
}

func readNode(from *detector, p *part) {
	d := nodeFiles{from}
	f, m := d.open("package.json"), d.manifest()
	if f == nil || !json.Valid([]byte(f.text)) {
		return
	}
	manager := d.manager(m)
	at := d.whole(manager.lock)
	run, install, version := manager.name, manager.install, ""
	if named := managerField.FindStringSubmatch(m.PackageManager); named != nil {
		version = named[2]
		if manager.lock == "package.json" {
			run, install = named[1], named[1]+" install"
		}
	}
	second := run == "yarn" && (version != "" && !strings.HasPrefix(version, "1.") || version == "" && d.has(".yarnrc.yml"))
	if second {
		install = "yarn install --immutable"
	}
	p.label = run
	d.versions(f, m, at, run, version, second, manager.version)
	p.install(at, d.hooked(f, m, install, second))
	for _, name := range []string{"test", "lint", "typecheck", "type-check", "build"} {
		if m.Scripts[name] != "" {
			p.convention(f.find(keyLine(name)), run+" run "+name)
		}
	}
	if m.Scripts["test"] == "" && run == "bun" {
		if name := d.below(d.dir, 0, "*.test.ts", "*.test.tsx", "*.test.js", "*_test.ts"); name != "" {
			p.convention(Position{File: name}, "bun test")
		}
	}
	if m.Scripts["typecheck"] == "" && m.Scripts["type-check"] == "" && len(d.jobs) == 0 && m.depends("typescript") && d.has("tsconfig.json") {
		p.convention(d.whole("tsconfig.json"), "npx tsc --noEmit")
	}
	d.members(f, m, p, run, second)
	d.server(f, m, run)
}

// hooked is an install without the scripts of the package, where these must not run.
func (d nodeFiles) hooked(f *file, m *packageJSON, install string, second bool) string {
	for _, name := range []string{"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"} {
		why := d.harm(m.Scripts[name])
		if why == "" || strings.HasPrefix(why, reasonRewrites) {
			continue
		}
		d.omit(f.find(keyLine(name)), name, "%s: setup installs without scripts", why)
		if second {
			return "YARN_ENABLE_SCRIPTS=0 " + install
		}
		return install + " --ignore-scripts"
	}
	return install
}

// keyLine matches the line of a key of a JSON object.
func keyLine(name string) *lazyregexp.Pattern {
	return lazyregexp.New(`"` + regexp.QuoteMeta(name) + `"\s*:`)
}

// versions asks for Node and for the package manager that setup is written for.
func (d nodeFiles) versions(f *file, m *packageJSON, lock Position, run, version string, second bool, usual string) {
	for _, from := range []struct {
		key  string
		says any
	}{{"volta", m.Volta}, {"engines", m.Engines}} {
		says, _ := from.says.(map[string]any)
		for _, tool := range []string{"node", run} {
			if v, _ := says[tool].(string); v != "" {
				d.hint(hintManifest, f.find(keyLine(from.key)), tool, v)
			}
		}
	}
	if second {
		usual = ">=2"
	}
	if version != "" {
		d.tool(f.find(keyLine("packageManager")), run, version)
	} else {
		d.hint(hintManifest, lock, run, usual)
	}
}

// allMembers run a script in every member of a workspace that has it.
var allMembers = map[string]string{
	"npm": "npm run SCRIPT --workspaces --if-present", "pnpm": "pnpm --recursive --if-present run SCRIPT",
	"bun":  "bun run --filter '*' SCRIPT",
	"yarn": "yarn workspaces run SCRIPT", "yarn 2": "yarn workspaces foreach --all run SCRIPT",
}

// members adds the checks of a workspace's members that the root does not have.
func (d nodeFiles) members(f *file, m *packageJSON, p *part, run string, second bool) {
	members, at := d.workspace(f, m)
	if second {
		run = "yarn 2"
	}
	for _, script := range []string{"test", "lint", "typecheck", "build"} {
		having, failing := 0, 0
		for _, member := range members {
			if content := member.Scripts[script]; content != "" && (strings.Contains(content, "exit 1") || !TestsNothing(content)) {
				having++
			}
			if strings.Contains(member.Scripts[script], "no test specified") {
				failing++
			}
		}
		switch {
		case having == failing || m.Scripts[script] != "":
		case failing > 0 || run == "yarn" && having < len(members):
			d.omit(at, "validate."+script, "the script %s cannot be run in all members, and a project file says in which", script)
		default:
			p.add(at, kind(script), strings.ReplaceAll(allMembers[run], "SCRIPT", script))
		}
	}
}

// workspace returns the manifests of a workspace's members, and the position of their list. Patterns end in one directory level, as
// `packages/*`.
func (d nodeFiles) workspace(f *file, m *packageJSON) (members []packageJSON, at Position) {
	var long struct{ Packages []string }
	var patterns []string
	if json.Unmarshal(m.Workspaces, &patterns) != nil {
		_ = json.Unmarshal(m.Workspaces, &long) // of a wrong form: as if it were absent
		patterns = long.Packages
	}
	at = f.find(keyLine("workspaces"))
	if w := d.open("pnpm-workspace.yaml"); w != nil {
		d.decode(w, &long)
		patterns, at = long.Packages, w.find(lazyregexp.New(`(?m)^packages`))
	}
	d.patterns = append(d.patterns, patterns...)
	for _, dir := range d.expand(at, patterns) {
		d.member(dir)
		member := &detector{d.source, dir}
		if member.has("package.json") {
			members = append(members, *member.manifest())
		}
	}
	return members, at
}

// expand lists the directories that the patterns of a workspace name, as paths in the repository.
func (d nodeFiles) expand(at Position, patterns []string) (dirs []string) {
	if len(patterns) > maxList {
		d.omit(at, "workspaces", "only the first %d patterns are read", maxList)
	}
	for _, p := range patterns[:min(len(patterns), maxList)] {
		p = strings.TrimSuffix(strings.TrimSuffix(path.Clean(p), "*"), "*")
		parent, all := strings.CutSuffix(p, "/")
		switch parent = path.Join(d.dir, parent); {
		case p == "" || !memberForm.MatchString(parent):
		case all:
			dirs = append(dirs, d.subdirs(parent)...)
		default:
			dirs = append(dirs, parent)
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	if len(dirs) > maxList {
		d.omit(at, "workspaces", "only the first %d members are read", maxList)
		dirs = dirs[:maxList]
	}
	return dirs
}

// nodeServers are programs that serve, and their default ports; 0 means that the repository has to name the port.
var nodeServers = []struct {
	program *lazyregexp.Pattern
	port    int
}{
	{lazyregexp.New(`^(?:vite|rolldown-vite)(?: dev| serve)?(?: --?.*| \.)?$`), 5173},
	{lazyregexp.New(`^next(?: dev| start)(?: |$)`), 3000},
	{lazyregexp.New(`^(?:nuxt|nuxi|nitro) dev`), 3000},
	{lazyregexp.New(`^astro dev`), 4321},
	{lazyregexp.New(`^ng serve`), 4200},
	{lazyregexp.New(`^vue-cli-service serve`), 8080},
	{lazyregexp.New(`^(?:webpack serve|webpack-dev-server)`), 8080},
	{lazyregexp.New(`^(?:react-scripts|react-app-rewired|craco) start`), 3000},
	{lazyregexp.New(`^(?:remix|react-router) (?:vite:)?dev`), 5173},
	{lazyregexp.New(`^gatsby develop`), 8000},
	{lazyregexp.New(`^(?:eleventy|docusaurus start|parcel|nest start|expo start --web|hexo server)`), 0},
	{lazyregexp.New(`^(?:vitepress|storybook|svelte-kit|wrangler) dev`), 0},
	{lazyregexp.New(`^(?:node|tsx|nodemon|ts-node|bun)(?: run)?(?: watch| --watch| -\S+)* [\w./-]*(?:server|app|index|main|www)`), 0},
}

var portFlag = lazyregexp.New(`(?:--port[= ]|-p |\bPORT=)([0-9]{2,5})`)

// server finds the script that is a development server.
func (d nodeFiles) server(f *file, m *packageJSON, run string) {
	for _, name := range []string{"dev", "start", "serve"} {
		for _, c := range script(m.Scripts[name], d.dir, Position{}) {
			for _, s := range nodeServers {
				if d.Dev != nil || !s.program.MatchString(c.text) {
					continue
				}
				dev := &Dev{Command: in(d.dir, run+" run "+name), Port: s.port, Guessed: true, At: f.find(keyLine(name))}
				if port := portFlag.FindStringSubmatch(m.Scripts[name]); port != nil {
					dev.Port, dev.Guessed = portOf(port[1]), false
				}
				d.Dev = dev
			}
		}
	}
}

// settlePort settles the port of the development server: without one there is no server.
func settlePort(d *detector) {
	if d.Dev == nil {
		return
	}
	ports := slices.DeleteFunc(slices.Clone(d.ports), func(port int) bool {
		return slices.ContainsFunc(d.Services, func(s Service) bool { return portOf(s.port()) == port })
	})
	if d.Dev.Port == 0 {
		ports = append(ports, d.builtPorts...)
	}
	switch {
	case d.Dev.Guessed && len(ports) == 1:
		d.Dev.Port, d.Dev.Guessed = ports[0], false
	case d.Dev.Port == 0 && len(ports) == 0:
		d.omit(d.Dev.At, "dev", "nothing names its port")
		d.Dev = nil
	case d.Dev.Guessed && len(ports) > 0 && !slices.Contains(ports, d.Dev.Port):
		d.omit(d.Dev.At, "dev", "several ports are forwarded, and not the usual one of its program")
		d.Dev = nil
	}
}

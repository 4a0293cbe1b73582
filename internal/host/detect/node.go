package detect

import (
	"encoding/json"
	"regexp"
	"strings"
)

type packageJSON struct {
	Scripts         map[string]string `json:"scripts"`
	Dependencies    map[string]any    `json:"dependencies"`
	DevDependencies map[string]any    `json:"devDependencies"`
	PackageManager  string            `json:"packageManager"` // such as pnpm@9.1.0+sha512.…
	Engines         any               `json:"engines"`        // by tool; old packages have a list
	Volta           any               `json:"volta"`

	broken bool // it is no JSON of this form
}

func (p *packageJSON) depends(name string) bool {
	return p.Dependencies[name] != nil || p.DevDependencies[name] != nil
}

// manifest is the repository's package.json; an empty one if there is none.
func (d *detector) manifest() *packageJSON {
	if d.node != nil {
		return d.node
	}
	d.node = &packageJSON{}
	f := d.open("package.json")
	if f == nil {
		return d.node
	}
	if err := json.Unmarshal([]byte(f.text), d.node); err != nil {
		d.omit(Position{File: f.name}, f.name, err.Error())
		d.node = &packageJSON{broken: true}
	}
	return d.node
}

var managerField = regexp.MustCompile(`^(npm|pnpm|yarn|bun)@([0-9][0-9A-Za-z.-]*)`)

// nodeManagers are the package managers, by lock file.
var nodeManagers = []struct{ lock, name, install string }{
	{"pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"},
	{"yarn.lock", "yarn", "yarn install --frozen-lockfile"},
	{"bun.lock", "bun", "bun install --frozen-lockfile"},
	{"bun.lockb", "bun", "bun install --frozen-lockfile"},
	{"package-lock.json", "npm", "npm ci"},
	{"npm-shrinkwrap.json", "npm", "npm ci"},
}

// nodeFiles takes what package.json and the files of its package managers say.
type nodeFiles struct{ *detector }

// npm takes what package.json and its lock file say.
func (d nodeFiles) npm() {
	f := d.open("package.json")
	if f == nil {
		return
	}
	p := d.manifest()
	if p.broken {
		return
	}
	at := Position{File: f.name}
	run, install := "npm", "npm install --no-package-lock"
	for _, m := range nodeManagers {
		if d.has(m.lock) {
			run, install, at = m.name, m.install, Position{File: m.lock}
			break
		}
	}
	version := ""
	if m := managerField.FindStringSubmatch(p.PackageManager); m != nil {
		version = m[2]
		if at.File == f.name { // no lock file
			run, install = m[1], m[1]+" install"
		}
	}
	if run == "yarn" && (version != "" && !strings.HasPrefix(version, "1.") || version == "" && d.has(".yarnrc.yml")) {
		install = "yarn install --immutable"
	}
	d.engines(f, p, run)
	d.manager(f, at, run, version)
	d.setup(at, install)
	for _, name := range []string{"test", "lint", "typecheck", "type-check", "build"} {
		// npm init writes a test script that only fails.
		if s := p.Scripts[name]; s != "" && !strings.Contains(s, "no test specified") {
			d.check(f.find(scriptLine(name)), checkName(name), run+" run "+name)
		}
	}
	if p.Scripts["typecheck"] == "" && p.Scripts["type-check"] == "" && p.depends("typescript") && d.has("tsconfig.json") {
		d.check(Position{File: "tsconfig.json"}, "typecheck", "npx tsc --noEmit")
	}
	d.nodeDev(f, p, run)
}

func scriptLine(name string) *regexp.Regexp {
	return regexp.MustCompile(`"` + regexp.QuoteMeta(name) + `"\s*:`)
}

// managerDefaults are the versions that lock files without a word of packageManager are read by: those of today's lock files.
var managerDefaults = map[string]string{"pnpm": "10", "yarn": "1", "bun": "1"}

// manager asks for the package manager that setup is written for.
func (d nodeFiles) manager(f *file, lock Position, name, version string) {
	if version != "" {
		d.tool(f.find(regexp.MustCompile(`"packageManager"`)), name, version)
		return
	}
	version = managerDefaults[name]
	if name == "yarn" && d.has(".yarnrc.yml") { // the second version has it, and those after it
		version = ">=2"
	}
	d.hint(lock, name, version)
}

// engines takes the versions that package.json says it works with, of what is used.
func (d nodeFiles) engines(f *file, p *packageJSON, manager string) {
	for _, from := range []struct {
		key  string
		says any
	}{{"volta", p.Volta}, {"engines", p.Engines}} {
		says, _ := from.says.(map[string]any)
		for _, tool := range []string{"node", manager} {
			if v, _ := says[tool].(string); v != "" {
				d.hint(f.find(regexp.MustCompile(`"`+from.key+`"\s*:`)), tool, v)
			}
		}
	}
}

var nodePorts = []struct {
	dependency string
	port       int
}{{"vite", 5173}, {"@sveltejs/kit", 5173}, {"astro", 4321}, {"@angular/cli", 4200}, {"gatsby", 8000}, {"vue-cli-service", 8080}}

func (d nodeFiles) nodeDev(f *file, p *packageJSON, run string) {
	for _, name := range []string{"dev", "start"} {
		if p.Scripts[name] == "" {
			continue
		}
		dev := &Dev{Command: run + " run " + name, Port: 3000, Guessed: true, At: f.find(scriptLine(name))}
		for _, known := range nodePorts {
			if p.depends(known.dependency) {
				dev.Port = known.port
				break
			}
		}
		if len(d.ports) > 0 {
			dev.Port, dev.Guessed = d.ports[0], false
		}
		d.Dev = dev
		return
	}
}

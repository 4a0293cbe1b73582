package scaffold

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// node reads package.json and the lock files beside it.
func (d *Draft) node(dir fs.FS) {
	text, ok := read(dir, "package.json")
	if !ok {
		return
	}
	var manifest struct {
		Scripts         map[string]string `json:"scripts"`
		Dependencies    map[string]any    `json:"dependencies"`
		DevDependencies map[string]any    `json:"devDependencies"`
	}
	if json.Unmarshal([]byte(text), &manifest) != nil {
		d.remarks = append(d.remarks, "package.json could not be read as JSON")
		return
	}
	run := "npm"
	switch {
	case has(dir, "pnpm-lock.yaml"):
		run = "pnpm"
		d.setup = append(d.setup, "corepack enable --install-directory ~/.local/bin", "pnpm install --frozen-lockfile")
	case has(dir, "yarn.lock"):
		run = "yarn"
		d.setup = append(d.setup, "corepack enable --install-directory ~/.local/bin", "yarn install --frozen-lockfile")
	case has(dir, "package-lock.json"), has(dir, "npm-shrinkwrap.json"):
		d.setup = append(d.setup, "npm ci")
	default:
		d.setup = append(d.setup, "npm install")
	}
	d.found("Node (" + run + ")")
	for _, name := range []string{"test", "lint", "typecheck", "type-check", "build"} {
		// npm init writes a test script that only fails.
		if s := manifest.Scripts[name]; s != "" && !strings.Contains(s, "no test specified") {
			d.check(name, run+" run "+name)
		}
	}
	deps := func(name string) bool {
		return manifest.Dependencies[name] != nil || manifest.DevDependencies[name] != nil
	}
	if manifest.Scripts["typecheck"] == "" && deps("typescript") && has(dir, "tsconfig.json") {
		d.check("typecheck", "npx tsc --noEmit")
	}
	for _, name := range []string{"dev", "start"} {
		if manifest.Scripts[name] == "" {
			continue
		}
		d.dev, d.port = run+" run "+name, 3000
		if deps("vite") || deps("@sveltejs/kit") {
			d.port = 5173
		}
		d.remarks = append(d.remarks, "dev.port is a guess")
		break
	}
}

func (d *Draft) golang(dir fs.FS) {
	if !has(dir, "go.mod") {
		return
	}
	d.found("Go")
	d.packages = append(d.packages, "golang-go")
	d.setup = append(d.setup, "go mod download")
	d.check("test", "go test ./...")
	d.check("vet", "go vet ./...")
}

// venv lies outside the work tree, so that it can never be committed.
const venv = "~/.venv"

func (d *Draft) python(dir fs.FS) {
	project, isProject := read(dir, "pyproject.toml")
	requirements, isList := read(dir, "requirements.txt")
	if !isProject && !isList {
		return
	}
	d.found("Python")
	d.packages = append(d.packages, "python3-venv")
	d.setup = append(d.setup, "python3 -m venv "+venv)
	if isList {
		d.setup = append(d.setup, venv+"/bin/pip install -r requirements.txt")
	}
	if isProject && strings.Contains(project, "[build-system]") {
		d.setup = append(d.setup, venv+"/bin/pip install -e .")
	}
	if strings.Contains(project+requirements, "pytest") || has(dir, "pytest.ini") || has(dir, "tests") {
		if !strings.Contains(project+requirements, "pytest") {
			d.setup = append(d.setup, venv+"/bin/pip install pytest")
		}
		d.check("test", venv+"/bin/python -m pytest")
	}
	if strings.Contains(project+requirements, "ruff") {
		d.check("lint", venv+"/bin/python -m ruff check .")
	}
}

var target = regexp.MustCompile(`(?m)^([A-Za-z0-9_-]+)\s*:(?:[^=]|$)`)

func (d *Draft) makefile(dir fs.FS) {
	text, ok := read(dir, "Makefile")
	if !ok {
		return
	}
	d.found("Makefile")
	var targets []string
	for _, m := range target.FindAllStringSubmatch(text, -1) {
		targets = append(targets, m[1])
	}
	for _, name := range []string{"test", "lint", "check"} {
		if slices.Contains(targets, name) {
			d.check(name, "make "+name)
		}
	}
}

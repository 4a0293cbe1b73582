package detect

import (
	"encoding/json"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

var memberForm = regexp.MustCompile(`^[A-Za-z0-9._@/-]+$`)

// read takes the checks of a workspace of npm's kind whose root has none of its own: one install at the root is its setup.
func (d nodeFiles) read() {
	d.npm()
	f := d.open("package.json")
	if f == nil || d.manifest().broken {
		return
	}
	members, at := d.members(f)
	if len(members) == 0 {
		return
	}
	run := "npm"
	for _, m := range nodeManagers {
		if d.has(m.lock) {
			run = m.name
			break
		}
	}
	if m := managerField.FindStringSubmatch(d.manifest().PackageManager); m != nil {
		run = m[1]
		if run == "yarn" && !strings.HasPrefix(m[2], "1.") {
			run = "yarn 2"
		}
	}
	for _, script := range []string{"test", "lint", "typecheck", "build"} {
		having, failing := 0, 0
		for _, m := range members {
			if m.Scripts[script] != "" {
				having++
			}
			if strings.Contains(m.Scripts[script], "no test specified") {
				failing++ // what npm init writes, and what a run in all members would run
			}
		}
		switch {
		case having == failing || d.manifest().Scripts[script] != "":
		case failing > 0 || run == "yarn" && having < len(members):
			d.omit(at, "validate."+checkName(script), "the script "+script+" cannot be run in all members, and a project file says in which")
		default:
			d.check(at, checkName(script), workspaceRun[run]+" "+script+workspaceRest[run])
		}
	}
}

// workspaceRun and workspaceRest run a script in every member that has it.
var (
	workspaceRun = map[string]string{
		"npm": "npm run", "pnpm": "pnpm --recursive --if-present run", "bun": "bun run --filter '*'",
		"yarn": "yarn workspaces run", "yarn 2": "yarn workspaces foreach --all run",
	}
	workspaceRest = map[string]string{"npm": " --workspaces --if-present"}
)

// members are the manifests of a workspace's members, and where they are listed. Patterns are those of one folder level, as `packages/*`.
func (d nodeFiles) members(f *file) (members []packageJSON, at Position) {
	var doc struct {
		Workspaces json.RawMessage `json:"workspaces"`
	}
	var patterns []string
	_ = json.Unmarshal([]byte(f.text), &doc) // its other parts are of a right form: it was read before
	if json.Unmarshal(doc.Workspaces, &patterns) != nil {
		var long struct{ Packages []string }
		_ = json.Unmarshal(doc.Workspaces, &long)
		patterns = long.Packages
	}
	at = f.find(regexp.MustCompile(`"workspaces"`))
	if w := d.open("pnpm-workspace.yaml"); w != nil {
		var long struct{ Packages []string }
		if err := yaml.Unmarshal([]byte(w.text), &long); err != nil {
			d.omit(Position{File: w.name}, w.name, err.Error())
		}
		patterns, at = long.Packages, w.find(regexp.MustCompile(`(?m)^packages`))
	}
	var dirs []string
	if len(patterns) > maxList {
		d.omit(at, "workspaces", "only the first 40 patterns are looked at")
	}
	for _, p := range patterns[:min(len(patterns), maxList)] {
		p = strings.TrimSuffix(strings.TrimPrefix(path.Clean(p), "./"), "*")
		parent, all := strings.CutSuffix(strings.TrimSuffix(p, "*"), "/")
		switch {
		case parent == "" || !fs.ValidPath(parent) || !memberForm.MatchString(parent):
		case all:
			dirs = append(dirs, d.folders(parent)...)
		default:
			dirs = append(dirs, parent)
		}
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if len(members) == maxList {
			d.omit(at, "workspaces", "only the first 40 members are looked at")
			break
		}
		if m := d.open(path.Join(dir, "package.json")); m != nil {
			var p packageJSON
			if json.Unmarshal([]byte(m.text), &p) == nil {
				members = append(members, p)
			}
		}
	}
	return members, at
}

// folders are the folders in a folder, without hidden ones, at most maxFolders.
func (d *files) folders(in string) (dirs []string) {
	const maxFolders = 200
	entries, err := fs.ReadDir(d.tree, in)
	if err != nil {
		return nil
	}
	for _, e := range d.plainNames(in, entries) {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "node_modules" && len(dirs) < maxFolders {
			dirs = append(dirs, path.Join(in, e.Name()))
		}
	}
	return dirs
}

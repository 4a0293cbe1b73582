package importer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/projects"
)

func TestContainerUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, row := range map[string]struct {
		json  string
		notes int
		check func(*projects.Project) bool
	}{
		"nothing": {`{}`, 0, func(p *projects.Project) bool { return p.Name == "x" }},
		"all": {
			`{"workdir":"/workdir","base_image":"ubuntu:24.04","setup_commands":["apt-get update && true"],"install_commands":["npm ci"],"env":["A=b=c","P=$PATH:/x"],
			"secrets":["K=env://CANARY","O=op://vault/it em/field","V=vault://secret/data.token","F=file://~/x"],
			"services":[{"name":"redis","image":"redis:7","command":"redis-server --save ''","exposed_ports":[6379],"env":{"X":"1.10"},"secrets":["S=env://Y"]}]}`, 3,
			func(p *projects.Project) bool {
				return len(p.Setup) == 2 && p.Setup[0] == "apt-get update && true" && p.Env["A"] == "b=c" && p.Env["P"] == "$PATH:/x" && len(p.Secrets) == 4 &&
					len(p.Services) == 1 && p.Services[0].Env["X"] == "1.10"
			},
		},
		"packages": {
			`{"setup_commands":["apt-get update && apt-get install -y jq","apt-get install -y jq tree\nmake"],"install_commands":["apt-get install -y cmake"]}`, 0,
			func(p *projects.Project) bool {
				return slices.Equal(p.Packages, []string{"jq", "tree", "cmake"}) && slices.Equal(p.Setup, []string{"make"})
			},
		},
		"other image":       {`{"base_image":"python:3.13","workdir":"/app"}`, 2, func(*projects.Project) bool { return true }},
		"a value":           {`{"secrets":["K=hunter2"]}`, 1, func(p *projects.Project) bool { return len(p.Secrets) == 1 }},
		"one twice":         {`{"env":["A=1","A=2"]}`, 0, func(p *projects.Project) bool { return p.Env["A"] == "2" }},
		"unknown keys":      {`{"env":[],"Workdir":"","locked":true,"services":[{"name":"a","image":"i"},{"name":"b","image":"i","tty":1}]}`, 2, func(p *projects.Project) bool { return len(p.Services) == 2 }},
		"env without value": {`{"env":["A"]}`, 1, func(p *projects.Project) bool { return len(p.Env) == 0 }},
	} {
		file := filepath.Join(dir, "environment.json")
		if err := os.WriteFile(file, []byte(row.json), 0o600); err != nil {
			t.Fatal(err)
		}
		text, notes, err := ContainerUse(file, "x")
		if err != nil || len(notes) != row.notes {
			t.Errorf("%s: %q, %v", name, notes, err)
			continue
		}
		p, err := projects.Parse("x.yaml", []byte(text), projects.LoadOptions{})
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if !row.check(p) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	for _, bad := range []string{`{`, `[]`, `{"env":1}`, `{"setup_commands":"x"}`} {
		file := filepath.Join(dir, "bad.json")
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, _, err := ContainerUse(file, "x"); err == nil {
			t.Errorf("%s: %s", bad, text)
		}
	}
}

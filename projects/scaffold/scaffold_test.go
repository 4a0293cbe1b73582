package scaffold_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/projects/scaffold"
)

var update = flag.Bool("update", false, "write golden files anew")

func folder(kv ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i+1 < len(kv); i += 2 {
		m[kv[i]] = &fstest.MapFile{Data: []byte(kv[i+1])}
	}
	return m
}

// TestDetect compares the drafts with golden files; each must be a valid project.
func TestDetect(t *testing.T) {
	for name, dir := range map[string]fstest.MapFS{
		"empty": folder(),
		"node": folder("package.json", `{"scripts":{"test":"vitest","lint":"eslint .","dev":"vite"},"devDependencies":{"vite":"5","typescript":"5"}}`,
			"package-lock.json", "{}", "tsconfig.json", "{}", ".git/config", "[core]\n[remote \"origin\"]\n\turl = git@github.com:me/app.git\n", ".git/HEAD", "ref: refs/heads/trunk\n"),
		"pnpm":   folder("package.json", `{"scripts":{"test":"echo \"Error: no test specified\" && exit 1","start":"node ."}}`, "pnpm-lock.yaml", ""),
		"go":     folder("go.mod", "module x", "Makefile", "GO := go\ntest: build\n\tgo test\nlint:\n\tx\n"),
		"python": folder("pyproject.toml", "[build-system]\n[tool.pytest]\n", "requirements.txt", "ruff\n"),
		"compose": folder("docker-compose.yml", `
services:
  db:
    image: postgres:16
    environment:
      POSTGRES_PASSWORD: postgres
      FROM_HOST: ${SECRET}
      TOKEN: ghp_hunter20000000000000
      EMPTY:
    ports: ["127.0.0.1:5432:5432", {target: 9000, protocol: udp}]
    healthcheck: {test: ["CMD-SHELL", "pg_isready -U $$POSTGRES_USER, x"], interval: 1s, retries: 5}
    volumes: ["data:/var/lib/postgresql/data", "./init:/docker-entrypoint-initdb.d", "/var/run/docker.sock:/var/run/docker.sock"]
  cache:
    image: redis:7
    command: redis-server --save "" --appendonly no
    environment: [A=b, "C=yes"]
    expose: [6379]
  web: {build: .}
  Odd_Name: {image: x}
  bad: [1]
`),
		"secretive": folder(".git/config", "[remote \"origin\"]\n\turl = https://user:hunter2@example.com/a/b\n", "package.json", "not json", "compose.yaml", "services: 1"),
	} {
		t.Run(name, func(t *testing.T) {
			d := scaffold.Detect(dir, "My App!")
			got := d.YAML()
			if _, err := projects.Parse("draft.yaml", []byte(got), projects.LoadOptions{Dir: "/"}); err != nil {
				t.Errorf("the draft is invalid: %v", err)
			}
			if strings.Contains(got, "hunter2") {
				t.Error("a credential is repeated")
			}
			file := "testdata/" + name + ".yaml"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v (write it with -update)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"my-app": "my-app", "My App!": "My-App", "": "my-project", "...": "my-project", "日本": "my-project",
		strings.Repeat("a", 100): strings.Repeat("a", 63), "/": "my-project",
	} {
		if got := scaffold.Detect(folder(), in).Name; got != want {
			t.Errorf("name of folder %q is %q, want %q", in, got, want)
		}
	}
}

//go:build e2e && bench

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// workRounds of each piece of work in each place, in turn.
const workRounds = 3

// workloads are what developers and agents do all day. Each script prints nothing that matters, and can be run again.
var workloads = []struct{ name, prepare, script string }{
	{"npm: clone, install, test (fastq 1.17)", "", "rm -rf w && git clone -q $T/src/fastq w && cd w && npm ci --silent && npm test"},
	{
		"Go: clone, download, vet, test (zap 1.27)", "",
		"rm -rf w && git clone -q $T/src/zap w && cd w && go mod download && go vet ./... && " +
			"go test -count=1 ./zapcore/... ./buffer/... ./internal/...",
	},
	{"npm ci of fastq's tools", "rm -rf w && git clone -q $T/src/fastq w", "cd w && rm -rf node_modules && npm ci --silent"},
	{
		"git status in 50,000 files",
		"[ -d many ] || { git init -q many && cd many && seq -f d%g 1 500 | xargs mkdir && " +
			"for d in d*; do seq -f $d/f%g 1 100; done | xargs -n 2000 touch && git add .; }",
		"cd many && git status --porcelain | wc -l",
	},
	{
		"write and remove 10,000 files", "",
		"mkdir -p f && cd f && seq 1 10000 | xargs -n 500 sh -c 'for i; do echo $i >$i; done' sh && cd .. && rm -rf f",
	},
}

// place is where the work is done. All have the same tools and sources below T, and caches of their own.
type place struct {
	tools string
	sh    func(script string) (string, error)
}

// TestBenchWork prints what work costs in a box whose Docker engine runs, beside the same commands on this machine and in a plain
// container, in the same minutes. It asserts nothing about time.
func TestBenchWork(t *testing.T) {
	u := newUser(t)
	tools := workTools(t)
	sandbox := u.standingBox("work", "name: work\nharness: {name: command, command: \"true\"}\n")
	u.cp(0, tools, sandbox+":/home/sandbox/tools")
	img, err := eng.ContainerInspect(t.Context(), "sandbox-agent-sandbox-"+sandbox)
	if err != nil {
		t.Fatal(err)
	}
	output := func(argv ...string) (string, error) {
		out, err := proc.Output(t.Context(), proc.Spec{Argv: argv, Env: os.Environ()})
		return string(out), err
	}
	plain, err := output("docker", "run", "-d", "--rm", "--entrypoint", "sleep", img.Image, "7200")
	if plain = strings.TrimSpace(plain); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proc.Run(context.WithoutCancel(t.Context()), proc.Spec{Argv: []string{"docker", "rm", "-f", plain}, Env: os.Environ()})
	})
	if _, err := output("docker", "cp", tools, plain+":/root/tools"); err != nil {
		t.Fatal(err)
	}
	places := []*place{
		{tools, func(s string) (string, error) { return output("bash", "-c", s) }},
		{"/home/sandbox/tools", func(s string) (string, error) {
			c := u.run("", "exec", sandbox, "--", "bash", "-c", s)
			if c.code != 0 {
				return "", fmt.Errorf("exit code %d: %s", c.code, c.stderr)
			}
			return c.stdout, nil
		}},
		{"/root/tools", func(s string) (string, error) { return output("docker", "exec", plain, "bash", "-c", s) }},
	}
	if c := u.run("", "exec", sandbox, "--", "docker", "version"); c.code != 0 {
		t.Fatalf("no Docker in the box: exit code %d", c.code)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what work costs (median of %d)\tms on this machine\tin the box\tin docker run\tbox / machine\tbox / docker run\taim\t\n", workRounds)
	for _, job := range workloads {
		took := make([][]time.Duration, len(places))
		for round := range workRounds + 1 {
			for i, p := range places {
				if d := p.timed(t, job.prepare, job.script); round > 0 { // the first one fills the caches
					took[i] = append(took[i], d)
				}
			}
		}
		host, box, docker := median(took[0]), median(took[1]), median(took[2])
		ratio, verdict := float64(box)/float64(host), "met"
		const aim = 1.05
		if ratio > aim {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.2f\t%.2f\t≤ %.2f %s\t\n", job.name, host.Milliseconds(), box.Milliseconds(), docker.Milliseconds(), ratio,
			float64(box)/float64(docker), aim, verdict)
	}
	_ = w.Flush()
}

// timed does the work once. Its time is that of the script alone, by the clock of its shell.
func (p *place) timed(t *testing.T, prepare, script string) time.Duration {
	t.Helper()
	if prepare == "" {
		prepare = "true"
	}
	out, err := p.sh(fmt.Sprintf(`set -e
export T=%s; export HOME=$T/home PATH=$T/bin:$T/go/bin:$PATH GOTOOLCHAIN=local GOFLAGS=-modcacherw
cd $HOME; (%s) >&2; start=$(date +%%s%%N); (%s) >$HOME/log 2>&1 || { tail -n 20 $HOME/log >&2; exit 1; }; echo $(($(date +%%s%%N) - start))`, p.tools, prepare, script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return time.Duration(ns)
}

// workTools is a directory with Go, node, npm and the sources, the same for all places: this machine's, with its mirrors.
func workTools(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `set -e
mkdir -p bin lib home/.config/go src
cp -r "$(go env GOROOT)" go
cp -L "$(command -v node)" bin/node
cp -rL "$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")" lib/npm
ln -s ../lib/npm/bin/npm-cli.js bin/npm
go env GOPROXY GOSUMDB GONOSUMDB | paste -d= - - - | awk -F= '{ print "GOPROXY=" $1; print "GOSUMDB=" $2; print "GONOSUMDB=" $3 }' >home/.config/go/env
{ echo "registry=$(npm config get registry)"; echo audit=false; echo fund=false; echo update-notifier=false; } >home/.npmrc
for s in fastq zap; do (cd src/$s && git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm all); done`
	err := errors.Join(writeTree(filepath.Join(dir, "src/fastq"), npmPackage(t, "fastq@1.17.1")),
		writeTree(filepath.Join(dir, "src/zap"), module(t, "go.uber.org/zap@v1.27.0")))
	if err == nil {
		err = proc.Run(t.Context(), proc.Spec{
			Argv: []string{"sh", "-c", "cd src/fastq && npm install --package-lock-only --silent --no-audit --no-fund"}, Dir: dir, Env: os.Environ(),
		})
	}
	if err == nil {
		err = proc.Run(t.Context(), proc.Spec{Argv: []string{"sh", "-c", script}, Dir: dir, Env: os.Environ()})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeTree(dir string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// agentReport is what `project init --agent --json` prints.
type agentReport struct {
	File     string `json:"file"`
	Accepted bool   `json:"accepted"`
	Rounds   int    `json:"rounds"`
	Setup    struct {
		ColdMS   int64 `json:"cold_ms"`
		CachedMS int64 `json:"cached_ms"`
	} `json:"setup"`
	Checks []struct {
		Name   string `json:"name"`
		Passed bool   `json:"passed"`
	} `json:"checks"`
	Problems []struct {
		Key string `json:"key"`
		Log string `json:"log"`
	} `json:"problems"`
	Message  string        `json:"message"`
	Project  string        `json:"project"`
	PR       *workorder.PR `json:"pr"`
	Findings []struct {
		Key  string `json:"key"`
		File string `json:"file"`
		Line int    `json:"line"`
	} `json:"findings"`
}

// initFiles are a repository whose tests need a setup that no convention names. Setup that has run leaves a mark in the home directory,
// which a later one from scratch must not find.
var initFiles = map[string]string{
	"Makefile":   "test:\n\ttest -e built\n\nprepare:\n\ttest ! -e $(HOME)/mark\n\ttouch built $(HOME)/mark\n",
	".gitignore": "built\n",
}

const (
	initSetup    = "name: app\nrepo: .\nlifecycle:\n  setup:\n    - make prepare # Makefile:4\n"
	wrongProject = initSetup + "validate:\n  test: make test missing # Makefile:1\n"
	rightProject = initSetup + "validate:\n  test: make test # Makefile:1\n"
)

// initAgent is an agent that commits the first file, and after the log of a failed check the second one.
func initAgent(first, second string) string {
	return `set -e
if [ -e .sandbox-agent.yaml ]; then
	grep -q validate.test "$SANDBOX_AGENT_PROMPT_FILE"
	printf %s '` + second + `' >.sandbox-agent.yaml
else
	grep -q 'validate:' "$SANDBOX_AGENT_PROMPT_FILE"
	printf %s '` + first + `' >.sandbox-agent.yaml
fi
touch other
git add -A
git commit -qm "Write the project file"
`
}

// initUser is a user in a repository, who must have nothing of the command afterwards but the named files.
func initUser(t *testing.T, files map[string]string, left ...string) *user {
	t.Helper()
	temp := t.TempDir()
	u := newCarefulUser(t, "TMPDIR="+temp)
	u.dir = u.repo(files)
	head := gittest.Git(t, u.dir, "for-each-ref")
	t.Cleanup(func() {
		if refs := gitAfter(t, u.dir, "for-each-ref"); refs != head {
			t.Errorf("refs before\n%s\nand after\n%s", head, refs)
		}
		var status []string
		for line := range strings.SplitSeq(gitAfter(t, u.dir, "status", "--porcelain"), "\n") {
			status = append(status, strings.TrimPrefix(line, "?? "))
		}
		if !slices.Equal(status, append(left, make([]string, max(0, 1-len(left)))...)) {
			t.Errorf("the work tree has %q, want %q", status, left)
		}
		if names, err := os.ReadDir(temp); err != nil || len(names) > 0 {
			t.Errorf("left in the temporary directory: %v, %v", names, err)
		}
		if names, err := os.ReadDir(filepath.Join(u.state, "tasks")); len(names) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("tasks are left: %v, %v", names, err)
		}
	})
	return u
}

// gitAfter runs git in a cleanup, when the test's context has ended.
func gitAfter(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := proc.Output(context.WithoutCancel(t.Context()), proc.Spec{Argv: append([]string{"git"}, args...), Dir: dir, Env: os.Environ()})
	if err != nil {
		t.Errorf("git %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func (c call) agentReport(t *testing.T) (r agentReport) {
	t.Helper()
	if err := json.Unmarshal([]byte(c.stdout), &r); err != nil {
		t.Fatalf("exit code %d, %v in %q", c.code, err, c.stdout)
	}
	return r
}

// An agent writes the project file; sandboxes without the agent decide whether it works.
func TestProjectInitAgent(t *testing.T) {
	t.Parallel()
	t.Run("second round", func(t *testing.T) {
		t.Parallel()
		u := initUser(t, initFiles, projects.DefaultFile)
		c := u.run("", "project", "init", "--agent", "--json", "--command", initAgent(wrongProject, rightProject))
		r := c.agentReport(t)
		if c.code != 0 || !r.Accepted || r.Rounds != 2 || len(r.Problems) != 0 {
			t.Fatalf("exit code %d, %+v", c.code, r)
		}
		if r.Setup.ColdMS <= 0 || r.Setup.CachedMS >= r.Setup.ColdMS || len(r.Checks) != 1 || r.Checks[0].Name != "test" || !r.Checks[0].Passed {
			t.Errorf("setup %+v, checks %+v", r.Setup, r.Checks)
		}
		if b, err := os.ReadFile(r.File); err != nil || string(b) != rightProject || r.Project != rightProject {
			t.Errorf("%s: %q, %v", r.File, b, err)
		}
		if len(r.Findings) == 0 || r.Findings[0].File != "Makefile" || r.Findings[0].Line == 0 {
			t.Errorf("findings %+v", r.Findings)
		}
		again := u.run("", "project", "init", "--agent", "--command", "exit 1")
		if b, err := os.ReadFile(r.File); again.code != workorder.ExitGeneral || err != nil || string(b) != rightProject {
			t.Errorf("over the file: exit code %d, %v", again.code, err)
		}
	})
	t.Run("never works", func(t *testing.T) {
		t.Parallel()
		u := initUser(t, initFiles, projects.DefaultFile+".rejected")
		c := u.run("", "project", "init", "--agent", "--json", "--rounds", "2", "--command", initAgent(wrongProject, wrongProject+"# again\n"))
		r := c.agentReport(t)
		if c.code != workorder.ExitTaskFailed || r.Accepted || r.Rounds != 2 || len(r.Problems) != 1 || r.Problems[0].Key != "validate.test" ||
			!strings.Contains(r.Problems[0].Log, "test -e built") {
			t.Fatalf("exit code %d, %+v", c.code, r)
		}
		if b, err := os.ReadFile(r.File); err != nil || string(b) != wrongProject+"# again\n" || !strings.HasSuffix(r.File, ".rejected") {
			t.Errorf("%s: %q, %v", r.File, b, err)
		}
	})
	t.Run("asks for a file of the user", func(t *testing.T) {
		t.Parallel()
		u := initUser(t, initFiles, projects.DefaultFile+".rejected")
		greedy := rightProject + "secrets:\n  KEY: file:///etc/hostname\n"
		c := u.run("", "project", "init", "--agent", "--json", "--rounds", "1", "--command", initAgent(greedy, greedy))
		r := c.agentReport(t)
		if c.code != workorder.ExitTaskFailed || len(r.Problems) != 1 || r.Problems[0].Key != "secrets.KEY" || r.Setup.ColdMS != 0 {
			t.Errorf("exit code %d, %+v", c.code, r)
		}
	})
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		u := initUser(t, initFiles)
		c := u.run("", "project", "init", "--agent", "--json", "--rounds", "1", "--command",
			"ln -s /etc/hostname .sandbox-agent.yaml && git add -A && git commit -qm link; exit 3")
		r := c.agentReport(t)
		if c.code != workorder.ExitTaskFailed || r.File != "" || len(r.Problems) != 2 || r.Problems[0].Key != "agent" ||
			r.Problems[1].Key != "file" {
			t.Errorf("exit code %d, %+v", c.code, r)
		}
	})
	for moment, script := range map[string]string{"agent": "echo now at work; sleep 600", "judge": initAgent(
		strings.Replace(rightProject, "make prepare", "echo now at work; sleep 600", 1), "")} {
		t.Run("interrupt the "+moment, func(t *testing.T) {
			t.Parallel()
			u := initUser(t, initFiles)
			s := u.start("", "project", "init", "--agent", "--command", script)
			s.waitFor("now at work\n")
			s.Signal(syscall.SIGINT)
			if c := s.wait(); c.code != workorder.ExitInterrupted {
				t.Errorf("exit code %d", c.code)
			}
		})
	}
}

// With --pr the file goes to the remote, in a task whose pull request has the proof.
func TestProjectInitAgentPullRequest(t *testing.T) {
	t.Parallel()
	f, srv, _ := besideForge(t, "")
	git, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(hostAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux() // one address for both, as an enterprise server has
	mux.Handle("/api/", f)
	mux.Handle("/o/", http.StripPrefix("/o", httputil.NewSingleHostReverseProxy(git)))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(ln) }()
	u := newCarefulUser(t, "SANDBOX_AGENT_GIT_TOKEN="+forgeToken)
	u.dir = u.repo(initFiles)
	gittest.Git(t, u.dir, "remote", "add", "origin", "http://"+ln.Addr().String()+"/o/app.git")
	repo := srv.Repo("app.git")
	gittest.Git(t, u.dir, "push", "--quiet", "--force", repo.Dir, "main")
	c := u.run("", "project", "init", "--agent", "--json", "--pr", "--command", initAgent(rightProject, ""))
	r := c.agentReport(t)
	if c.code != 0 || r.PR == nil || r.File != "" {
		t.Fatalf("exit code %d, %+v", c.code, r)
	}
	i, ok := f.Issue(r.PR.Number)
	if !ok || i.Pull.Base != "main" {
		t.Fatalf("pull request %+v", i)
	}
	if got := gittest.Git(t, repo.Dir, "show", i.Pull.Head+":"+projects.DefaultFile); got != strings.TrimSpace(rightProject) {
		t.Errorf("the branch has %q", got)
	}
	if status := gittest.Git(t, u.dir, "status", "--porcelain"); status != "" {
		t.Errorf("the work tree has %q", status)
	}
}

// The real CLIs of the image write a project file, each against a scripted model on this machine.
func TestRealAgentsWriteAProjectFile(t *testing.T) {
	t.Parallel()
	write := "printf %s '" + rightProject + "' >.sandbox-agent.yaml && git add -A && git commit -qm 'Write the project file'"
	use := modelUsage{Input: 1000, Output: 50}
	quoted, err := json.Marshal(write)
	if err != nil {
		t.Fatal(err)
	}
	// The default model of Codex calls tools by code.
	script := "const r = await tools.exec_command({cmd: " + string(quoted) + "}); text(r.output);"
	code := reply{Tool: "custom:exec", Input: map[string]string{"input": script}}
	bash := reply{Tool: "Bash", Input: map[string]string{"command": write, "description": "write"}, Usage: use}
	for _, row := range []struct {
		harness, server, key, base string
		work                       reply
	}{
		{"claude-code", modelServer, "ANTHROPIC_API_KEY=" + claudeKey, "ANTHROPIC_BASE_URL=http://", bash},
		{"codex", openaiServer, "OPENAI_API_KEY=" + openaiKey, "OPENAI_BASE_URL=http://", code},
		{"opencode", openaiServer, "OPENAI_API_KEY=" + openaiKey, "OPENAI_BASE_URL=http://", opencodeSays(write)},
	} {
		if !nightly && row.harness != "claude-code" {
			continue
		}
		t.Run(row.harness, func(t *testing.T) {
			t.Parallel()
			row.work.Usage = use
			address := outerModel(t, row.server, row.work, reply{Text: "Its test works.", Usage: use})
			if row.server == openaiServer {
				address += "/v1"
			}
			u := initUser(t, initFiles, projects.DefaultFile)
			u.env = append(u.env, row.key, row.base+address)
			c := u.run("", "project", "init", "--agent", "--json", "--rounds", "1", "--harness", row.harness)
			r := c.agentReport(t)
			if c.code != 0 || !r.Accepted || r.Project != rightProject || r.Message != "Its test works." {
				t.Errorf("exit code %d, %+v", c.code, r)
			}
		})
	}
}

// outerModel serves a model's replies where sandboxes reach them, and returns its host and port.
func outerModel(t *testing.T, server string, replies ...reply) string {
	t.Helper()
	host, dir := hostAddress(t), t.TempDir()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_ = ln.Close()
	script, err := json.Marshal(replies)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"model.py": strings.ReplaceAll(server, "127.0.0.1", host), "script.json": string(script)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := proc.Start(t.Context(), proc.Spec{
		Argv: []string{"python3", "model.py", port, "script.json", "calls.jsonl"}, Dir: dir, Env: os.Environ(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Signal(syscall.SIGKILL) })
	for range 300 {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
			return net.JoinHostPort(host, port)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the model does not answer")
	return ""
}

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

const mcpToken = "the-token-of-the-e2e-test"

// mcpServer is the program, served over HTTP.
type mcpServer struct {
	*started
	url string
}

var mcpURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/mcp`)

func serveMCP(u *user, args ...string) *mcpServer {
	u.t.Helper()
	s := &mcpServer{started: u.start("", append([]string{"mcp", "--listen", "127.0.0.1:0"}, args...)...)}
	s.waitFor("/mcp")
	s.url = mcpURL.FindString(s.errOut.String())
	return s
}

// end stops the server, before the test's context does.
func (s *mcpServer) end() {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	if c := s.wait(); c.code != 0 {
		s.t.Errorf("exit code %d", c.code)
	}
}

// withToken shows a token.
type withToken string

func (k withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

func (s *mcpServer) client(token string) *mcp.ClientSession {
	s.t.Helper()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "v1"}, nil).Connect(s.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.url, HTTPClient: &http.Client{Transport: withToken(token)}, MaxRetries: -1,
	}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// askTool is the text of a call's result.
func askTool(ctx context.Context, c *mcp.ClientSession, tool string, args map[string]any) (text string, failed bool, err error) {
	got, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", false, err
	}
	return got.Content[0].(*mcp.TextContent).Text, got.IsError, nil
}

// Clients over HTTP have sessions of their own; the server ends in the middle of a call, and nothing is left.
func TestMCPOverHTTP(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	u := newCarefulUser(t, "TMPDIR="+tmp)
	s := serveMCP(u)
	b, err := os.ReadFile(filepath.Join(u.state, "mcp.token"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(b))
	one, two := s.client(token), s.client(token)
	run := func(c *mcp.ClientSession, code string) string {
		t.Helper()
		text, failed, err := askTool(t.Context(), c, "run", map[string]any{"env": "python", "session": "s", "code": code})
		if err != nil || failed {
			t.Errorf("%q, %v", text, err)
		}
		return text
	}
	run(one, "x = 1")
	run(two, "x = 2")
	// What the code prints is in the answer, whatever it looks like.
	if a, b := run(one, `print(x, '\n{"jsonrpc":"2.0","id":1,"result":{}}\nevent: message\ndata: {}\n')`), run(two, "print(x)"); !strings.HasPrefix(a, "1 \n{") || b != "2\n" {
		t.Errorf("%q, %q", a, b)
	}
	var call sync.WaitGroup
	call.Go(func() {
		_, _, _ = askTool(t.Context(), two, "run", map[string]any{"env": "shell", "code": "exec sleep 987.25"}) // it is cut
	})
	for deadline := time.Now().Add(20 * time.Second); !alive("sleep 987.25") && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	began := time.Now()
	s.Signal(syscall.SIGTERM)
	if c := s.wait(); c.code != 0 || c.stdout != "" || time.Since(began) > 10*time.Second {
		t.Errorf("exit code %d after %s, %q", c.code, time.Since(began), c.stdout)
	}
	call.Wait()
	if alive("sleep 987.25") {
		t.Error("what the call ran goes on")
	}
	if st, err := os.Stat(filepath.Join(tmp, "sandbox-agent-mcp.log")); err != nil || st.Mode().Perm() != 0o600 || st.Size() == 0 {
		t.Errorf("%v, %v", st, err)
	}
	noSessions(t, u)
}

// alive reports whether a process of this machine has that command line.
func alive(command string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(all, func(p string) bool {
		b, err := os.ReadFile(p)
		return err == nil && strings.TrimSuffix(strings.ReplaceAll(string(b), "\x00", " "), " ") == command
	})
}

func noSessions(t *testing.T, u *user) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(u.state, "sandboxes"))
	if err != nil {
		return // there was none
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "session-") {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// On standard input and output, a call ends with the server, too.
func TestMCPStopped(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t, "TMPDIR="+t.TempDir())
	in, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	defer in.Close()
	p := u.startWith(in, "mcp")
	_, err = keys.WriteString(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}`+"\n", 5000) +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run","arguments":{"env":"shell","session":"s","code":"sleep 987.75"}}}` + "\n")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !alive("sleep 987.75") && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	began := time.Now()
	p.Signal(syscall.SIGTERM)
	c := p.wait()
	if c.code != 0 || time.Since(began) > 10*time.Second || alive("sleep 987.75") {
		t.Errorf("exit code %d after %s", c.code, time.Since(began))
	}
	for line := range strings.Lines(c.stdout) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q is not of the protocol", line)
		}
	}
	noSessions(t, u)
}

// An agent hands out a task of the user's project, sees where it is, and reads what came of it.
func TestMCPTask(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	u := newUser(t, "TMPDIR="+t.TempDir(), "XDG_CONFIG_HOME="+config, "SANDBOX_AGENT_MCP_TOKEN="+mcpToken)
	repo := u.repo(map[string]string{"a.txt": "a\n"})
	dir := filepath.Join(config, "sandbox-agent", "projects")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	yaml := "name: mine\nrepo: " + repo + "\nharness: {name: command, command: \"cat >task.txt; git add -A; git commit -qm Task; echo worked\"}\nvalidate: {there: test -s task.txt, fails: test ! -e task.txt}\n"
	for _, name := range []string{"mine.yaml", "trick.yaml.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A file that an agent might have written.
	file := filepath.Join(u.dir, "evil.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveMCP(u, "--tools", "run,task")
	defer s.end()
	c := s.client(mcpToken)
	for name, args := range map[string]map[string]any{
		"a path":                       {"task": "x", "project": file},
		"a file here":                  {"task": "x", "project": "evil.yaml"},
		"a name as a path":             {"task": "x", "project": "trick.yaml"},
		"unknown":                      {"task": "x", "project": "nobodys"},
		"a repository of this machine": {"task": "x", "repo": repo},
		"one by a URL":                 {"task": "x", "repo": "file://" + repo},
		"a flag":                       {"task": "x", "repo": "--upload-pack=true"},
		"another transport":            {"task": "x", "repo": "ext::sh -c true"},
		"a project for another":        {"task": "x", "project": "mine", "repo": "https://example.invalid/a/b"},
		"no task":                      {"project": "mine"},
		"an empty task":                {"task": " ", "project": "mine"},
		"an unknown argument":          {"task": "x", "project": "mine", "command": "true"},
		"an unknown harness":           {"task": "x", "project": "mine", "harness": "nobodys"},
	} {
		text, _, err := askTool(t.Context(), c, "task_create", args)
		if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	var begun struct{ ID string }
	const task = "--help\nmake task.txt"
	text, failed, err := askTool(t.Context(), c, "task_create", map[string]any{"task": task, "project": "mine"})
	if err != nil || failed || json.Unmarshal([]byte(text), &begun) != nil {
		t.Fatalf("%q, %v", text, err)
	}
	var status struct {
		State string
		Ended bool
		Lines []string
	}
	if text, failed, err = askTool(t.Context(), c, "task_result", map[string]any{"id": begun.ID}); err != nil || !failed {
		t.Errorf("the result of one that runs: %q, %v", text, err)
	}
	for deadline := time.Now().Add(2 * time.Minute); !status.Ended && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if text, failed, err = askTool(t.Context(), c, "task_status", map[string]any{"id": begun.ID}); err != nil || failed || json.Unmarshal([]byte(text), &status) != nil {
			t.Fatalf("%q, %v", text, err)
		}
	}
	if status.State != "failed" || len(status.Lines) == 0 {
		t.Errorf("%+v", status)
	}
	var result struct {
		Status, Branch, Reason, Folder string
		Pushed                         bool
		Commits                        []string
		Checks                         []struct {
			Name   string
			Passed bool
		}
	}
	if text, failed, err = askTool(t.Context(), c, "task_result", map[string]any{"id": begun.ID}); err != nil || failed || json.Unmarshal([]byte(text), &result) != nil {
		t.Fatalf("%q, %v", text, err)
	}
	if result.Status != "failed" || result.Reason == "" || !result.Pushed || len(result.Checks) != 2 || !slices.Equal(result.Commits, []string{"Task"}) || gittest.Git(t, repo, "show", result.Branch+":task.txt") != task {
		t.Errorf("%s", text)
	}
	if u.result(begun.ID).Branch != result.Branch {
		t.Error("it is another result than the command line's")
	}
	for _, id := range []string{"T-00000000", begun.ID[:4], "", "../" + begun.ID} {
		for _, tool := range []string{"task_status", "task_result"} {
			_, _, err := askTool(t.Context(), c, tool, map[string]any{"id": id})
			if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeInvalidParams {
				t.Errorf("%s %q: %v", tool, id, err)
			}
		}
	}
}

// agentCLIs are the programs of agents out of the box's image, in a folder of this machine beside the program under test.
func agentCLIs(t *testing.T) string {
	t.Helper()
	image, err := proc.Output(t.Context(), proc.Spec{Argv: []string{bin, "image", "build", "--with", "all"}})
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(image))
	docker := func(args ...string) string {
		t.Helper()
		out, err := proc.Output(context.WithoutCancel(t.Context()), proc.Spec{Argv: append([]string{"docker"}, args...)})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	id := docker("create", fields[len(fields)-1], "true") // it never runs
	defer docker("rm", id)
	dir := t.TempDir()
	for from, to := range map[string]string{"/usr/local/bin/claude": "bin/claude", "/usr/local/bin/opencode": "bin/opencode", "/usr/local/lib/codex": "lib/codex"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		docker("cp", "-q", id+":"+from, filepath.Join(dir, to))
	}
	if err := errors.Join(os.Symlink("../lib/codex/bin/codex", filepath.Join(dir, "bin/codex")), os.Symlink(bin, filepath.Join(dir, "bin/sandbox-agent"))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "bin")
}

// scriptedModel is a model's server on this machine that has the model call the tool, and says what the tool answered.
func scriptedModel(t *testing.T, server string, calls ...reply) (port string, results func() []string) {
	t.Helper()
	dir := t.TempDir()
	port = freePort(t, "127.0.0.1")
	script, err := json.Marshal(append(calls, reply{Text: "Done."}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "script.json"), script, 0o600), os.WriteFile(filepath.Join(dir, "model.py"), []byte(server), 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p, err := proc.Start(ctx, proc.Spec{Argv: []string{"python3", "model.py", port, "script.json", "calls.jsonl"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = p.Wait()
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+port); err == nil {
			_ = c.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	return port, func() []string {
		var calls []modelCall
		lines(t, filepath.Join(dir, "calls.jsonl"), &calls)
		return calls[len(calls)-1].Results
	}
}

// The real agents, set up by the lines of docs/mcp.md, call the server, and what it answers reaches their model. They are those of the box's image, run on this machine.
func TestMCPAgents(t *testing.T) {
	t.Parallel()
	programs := agentCLIs(t)
	input := map[string]string{"env": "python", "code": "print(6 * 7)"}
	for name, agent := range map[string]struct {
		server string
		call   reply
		setUp  func(dir, home, url string) string // a script for sh; "" as the URL is standard input and output
		run    string                             // $PORT is the model's
	}{
		"claude": {
			modelServer,
			reply{Tool: "mcp__sandbox__run", Input: input},
			func(_, _, url string) string {
				if url == "" {
					return "claude mcp add sandbox -- sandbox-agent mcp"
				}
				return `claude mcp add -t http sandbox ` + url + ` -H 'Authorization: Bearer ${SANDBOX_AGENT_MCP_TOKEN}'`
			},
			`ANTHROPIC_BASE_URL=http://127.0.0.1:$PORT ANTHROPIC_API_KEY=` + claudeKey + ` CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 claude -p go --model ` + claudeModel + ` --allowedTools mcp__sandbox__run </dev/null`,
		},
		"codex": {
			openaiServer,
			reply{Tool: "run", Namespace: "mcp__sandbox", Input: input},
			func(_, home, url string) string {
				text := "[mcp_servers.sandbox]\ncommand = \"sandbox-agent\"\nargs = [\"mcp\"]\n"
				if url != "" {
					text = "[mcp_servers.sandbox]\nurl = \"" + url + "\"\nbearer_token_env_var = \"SANDBOX_AGENT_MCP_TOKEN\"\n"
				}
				return writing(filepath.Join(home, ".codex", "config.toml"), text)
			},
			`CODEX_API_KEY=` + openaiKey + ` codex exec --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check -m ` + openaiModel + ` -c openai_base_url=http://127.0.0.1:$PORT/v1 -c analytics.enabled=false --disable plugins --disable apps go </dev/null`,
		},
		"opencode": {
			openaiServer,
			reply{Tool: "sandbox_run", Input: input},
			func(dir, _, url string) string {
				text := `{"mcp": {"sandbox": {"type": "local", "command": ["sandbox-agent", "mcp"]}}}`
				if url != "" {
					text = `{"mcp": {"sandbox": {"type": "remote", "url": "` + url + `", "oauth": false, "headers": {"Authorization": "Bearer {env:SANDBOX_AGENT_MCP_TOKEN}"}}}}`
				}
				return writing(filepath.Join(dir, "opencode.json"), text)
			},
			`OPENCODE_CONFIG_CONTENT='{"provider":{"openai":{"options":{"baseURL":"http://127.0.0.1:'$PORT'/v1"}}},"small_model":"openai/` + openaiModel + `"}' OPENAI_API_KEY=` + openaiKey +
				` OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1 opencode run --auto --title t -m openai/` + openaiModel + ` go </dev/null`,
		},
	} {
		for _, over := range []string{"stdio", "http"} {
			if over == "http" && name != "claude" && !nightly { // the server's half is the same
				continue
			}
			t.Run(name+" over "+over, func(t *testing.T) {
				u := newCarefulUser(t, "TMPDIR="+t.TempDir(), "SANDBOX_AGENT_MCP_TOKEN="+mcpToken)
				url, home := "", t.TempDir()
				if over == "http" {
					s := serveMCP(u)
					url = s.url
					defer s.end()
				}
				port, results := scriptedModel(t, agent.server, agent.call)
				env := append(slices.Clone(u.env), "HOME="+home, "PATH="+programs+":"+os.Getenv("PATH"), "PORT="+port)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				out := &syncBuffer{}
				if err := proc.Run(ctx, proc.Spec{Argv: []string{"sh", "-ec", agent.setUp(u.dir, home, url) + "\n" + agent.run}, Dir: u.dir, Env: env, Stdout: out, Stderr: out}); err != nil {
					t.Errorf("%v: %s", err, out)
				}
				if got := results(); !slices.ContainsFunc(got, func(r string) bool { return strings.TrimSpace(r) == "42" }) {
					t.Errorf("%q reached the model: %s", got, out)
				}
			})
		}
	}
}

// writing is a command that writes a file.
func writing(path, text string) string {
	return fmt.Sprintf("mkdir -p '%s' && cat >'%s' <<'END'\n%s\nEND", filepath.Dir(path), path, text)
}

// A server reads its environments anew at SIGHUP and when their file changes, tells its clients, keeps what it had when the file is wrong, and the sessions of others go on.
func TestReload(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	file := u.put("presets.yaml", "presets: {one: {preset: python}}\n", 0o644)
	u.env = append(u.env, "SANDBOX_AGENT_PRESETS="+file, "SANDBOX_AGENT_MCP_TOKEN="+mcpToken, "TMPDIR="+t.TempDir())
	s := serveMCP(u)
	told := make(chan struct{}, 8)
	c, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "v1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} },
	}).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: withToken(mcpToken)}, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	call := func(env, code string) string {
		t.Helper()
		text, _, err := askTool(t.Context(), c, "run", map[string]any{"env": env, "code": code, "session": "s-" + env})
		if err != nil {
			return err.Error()
		}
		return text
	}
	call("one", "x = 1")
	waitTold := func() {
		t.Helper()
		select {
		case <-told:
		case <-time.After(30 * time.Second):
			t.Fatal("no client was told")
		}
	}
	// By itself.
	u.put("presets.yaml", "presets: {one: {preset: python}, second: {preset: shell}}\n", 0o644)
	waitTold()
	if got := call("second", "echo $((6 * 7))"); got != "42\n" {
		t.Error(got)
	}
	// A broken one keeps the old.
	u.put("presets.yaml", "presets: {one: {preset: python}", 0o644)
	s.waitFor("stay as they were")
	if got := call("second", "echo again"); got != "again\n" {
		t.Error(got)
	}
	// By SIGHUP.
	u.put("presets.yaml", "presets: {one: {preset: python}, third: {preset: shell}}\n", 0o644)
	s.Signal(syscall.SIGHUP)
	waitTold()
	if got := call("third", "echo 3"); got != "3\n" {
		t.Error(got)
	}
	if got := call("second", "1"); !strings.Contains(got, "third") {
		t.Error(got)
	}
	if got := call("one", "x + 1"); got != "2" {
		t.Errorf("the session of another is gone: %q", got)
	}
	_ = c.Close()
	s.end()
}

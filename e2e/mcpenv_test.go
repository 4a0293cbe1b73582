//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// envClient is a client of the tools for environments.
type envClient struct {
	t  *testing.T
	u  *user
	c  *mcp.ClientSession
	id string // added to each call
}

// call is the answer's first text, and all of it.
func (e *envClient) call(tool string, args map[string]any) (first, all string, failed bool) {
	e.t.Helper()
	if e.id != "" && args["environment_id"] == nil {
		args["environment_id"] = e.id
	}
	got, err := e.c.CallTool(e.t.Context(), &mcp.CallToolParams{Name: "environment_" + tool, Arguments: args})
	if err != nil {
		e.t.Fatalf("%s: %v", tool, err)
	}
	for i, c := range got.Content {
		said := c.(*mcp.TextContent).Text
		if i == 0 {
			first = said
		}
		all += said + "\n"
	}
	return first, all, got.IsError
}

// ok is call of one that works, as a document.
func (e *envClient) ok(tool string, args map[string]any, to any) string {
	e.t.Helper()
	first, all, failed := e.call(tool, args)
	if failed {
		e.t.Errorf("%s %v: %s", tool, args, all)
	}
	if to != nil && json.Unmarshal([]byte(first), to) != nil {
		e.t.Errorf("%s: no document: %s", tool, first)
	}
	return all
}

type envRan struct {
	Stdout, Stderr, Commit string
	ExitCode               int `json:"exit_code"`
	Endpoints              map[string]struct {
		Host string `json:"host_external"`
	}
}

type envMade struct {
	ID, Branch, Workdir string
	Notes               []string
	Endpoints           map[string]struct {
		Inside string `json:"environment_internal"`
		Host   string `json:"host_external"`
	}
}

// An agent works in an environment of each kind, and a person looks at the work by the commands of the answers.
func TestMCPEnvironments(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"jail", "container", "box"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t, "TMPDIR="+t.TempDir(), "SANDBOX_AGENT_MCP_TOKEN="+mcpToken)
			repo := u.newRepo()
			if err := os.WriteFile(filepath.Join(repo, "dirty"), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			s := serveMCP(u, "--tools", "env", "--runtime", kind)
			defer s.end()
			e := &envClient{t: t, u: u, c: s.client(mcpToken)}
			var made envMade
			title := fmt.Sprintf("Try %s %d", kind, os.Getpid())
			all := e.ok("create", map[string]any{"title": title}, &made)
			u.claim(made.ID)
			if made.Workdir != "/workspace" || made.Branch != "sandbox/"+made.ID || !strings.Contains(strings.Join(made.Notes, "\n"), "dirty") {
				t.Errorf("%+v", made)
			}
			e.id = made.ID
			head := func() string { t.Helper(); return gittest.Git(t, repo, "rev-parse", "sandbox/"+made.ID) }
			// Each of the commands that the answer names works.
			told := 0
			for line := range strings.Lines(all) {
				if words, ok := strings.CutPrefix(strings.TrimSpace(line), "sandbox-agent "); ok {
					told++
					if c := u.run("", strings.Fields(words)...); c.code != 0 {
						t.Errorf("%s: exit code %d: %s", words, c.code, c.stderr)
					}
				}
			}
			if gittest.Git(t, repo, "switch", "-q", "main"); told != 3 {
				t.Errorf("%d commands: %s", told, all)
			}
			// Commands: what they changed is committed, whatever they ended with.
			var ran envRan
			first, _, failed := e.call("run_cmd", map[string]any{"command": "pwd; printf 'a\\nb' >t; echo err >&2; exit 3", "explanation": "to see"})
			if json.Unmarshal([]byte(first), &ran) != nil || !failed || ran.ExitCode != 3 || ran.Stdout != "/workspace\n" || ran.Stderr != "err\n" || ran.Commit == "" || ran.Commit != head() {
				t.Errorf("%s", first)
			}
			e.ok("run_cmd", map[string]any{"command": "test ! -e dirty; printf '\\377'; head -c 100000 /dev/zero | tr '\\0' x", "shell": "bash"}, &ran)
			if len(ran.Stdout) > 30000 || !strings.HasPrefix(ran.Stdout, "\uFFFD") {
				t.Errorf("%d bytes", len(ran.Stdout))
			}
			// Files.
			read := func(args map[string]any) string { t.Helper(); first, _, _ := e.call("file_read", args); return first }
			if got := read(map[string]any{"target_file": "t", "start_line": 2, "end_line": 2}); got != "b" {
				t.Errorf("%q", got)
			}
			if got := read(map[string]any{"target_file": "/workspace/t"}); got != "a\nb" {
				t.Errorf("%q", got)
			}
			var change struct {
				Commit string
				Notes  []string
			}
			e.ok("file_write", map[string]any{"target_file": "d/é b", "contents": "one\none\n"}, &change)
			if change.Commit == "" || change.Commit != head() || gittest.Git(t, repo, "show", "sandbox/"+made.ID+":d/é b") != "one\none" {
				t.Errorf("%+v", change)
			}
			if e.ok("file_write", map[string]any{"target_file": "/tmp/outside", "contents": "x"}, &change); change.Commit != "" && change.Commit == head() && len(change.Notes) == 0 {
				t.Errorf("%+v", change)
			}
			var many struct{ Matches []struct{ ID string } }
			first, _, failed = e.call("file_edit", map[string]any{"target_file": "d/é b", "search_text": "one", "replace_text": "two"})
			if json.Unmarshal([]byte(first), &many) != nil || !failed || len(many.Matches) != 2 {
				t.Fatal(first)
			}
			e.ok("file_edit", map[string]any{"target_file": "d/é b", "search_text": "one", "replace_text": "two", "which_match": many.Matches[1].ID}, nil)
			if got := gittest.Git(t, repo, "show", "sandbox/"+made.ID+":d/é b"); got != "one\ntwo" {
				t.Error(got)
			}
			var list struct{ Files []struct{ Name, Type string } }
			if e.ok("file_list", map[string]any{}, &list); !slices.ContainsFunc(list.Files, func(f struct{ Name, Type string }) bool { return f.Name == "d" && f.Type == "folder" }) {
				t.Errorf("%+v", list)
			}
			e.ok("file_delete", map[string]any{"target_file": "f"}, nil)
			if got := gittest.Git(t, repo, "diff", "--name-status", "main", "sandbox/"+made.ID, "--", "f"); got != "D\tf" {
				t.Error(got)
			}
			// A server in the background, on this machine.
			e.ok("run_cmd", map[string]any{"command": "exec python3 -m http.server 8000", "background": true, "ports": []int{8000}}, &ran)
			if b := fetched(t, "http://"+ran.Endpoints["8000"].Host+"/t"); b != "a\nb" {
				t.Errorf("%+v: %q", ran.Endpoints, b)
			}
			// A checkpoint stays.
			var kept struct{ Commit, Tag, Snapshot string }
			if e.ok("checkpoint", map[string]any{"name": "one"}, &kept); kept.Commit != head() || kept.Snapshot != "one" {
				t.Errorf("%+v", kept)
			}
			// What no commit has would be lost by another configuration.
			e.ok("run_cmd", map[string]any{"command": "truncate -s 11M large"}, nil)
			if _, all, failed := e.call("config", map[string]any{"config": map[string]any{"env": map[string]any{"A": "1"}}}); !failed || !strings.Contains(all, "large") {
				t.Errorf("a file is lost: %s", all)
			}
			e.ok("run_cmd", map[string]any{"command": "rm large"}, nil)
			if kind == "box" { // what an agent asks for and what fails is no part of it, also where the repository has no project file
				for tool, args := range map[string]map[string]any{"config": {"config": map[string]any{"setup_commands": []string{"exit 3"}}}, "add_service": {"name": "none", "image": "sandbox-agent-e2e/none:1"}} {
					if first, _, failed := e.call(tool, args); !failed {
						t.Errorf("%s: %s", tool, first)
					}
				}
			}
			// Another configuration: the work stays, and the branch goes on.
			e.ok("run_cmd", map[string]any{"command": "echo x >/tmp/gone"}, nil)
			before := head()
			config := map[string]any{"env": map[string]any{"A": "b c"}, "network": "none"}
			if kind == "box" {
				config["setup_commands"] = []string{"echo set up >/tmp/setup"}
			}
			e.ok("config", map[string]any{"config": config}, nil)
			if e.ok("run_cmd", map[string]any{"command": "echo $A; cat t 'd/é b'; test ! -e f || echo f; cat /tmp/gone /tmp/setup; git status --short; echo more >>t"}, &ran); ran.Stdout != "b c\na\nbone\ntwo\n"+map[string]string{"box": "set up\n"}[kind] {
				t.Errorf("%+v", ran)
			}
			if got := gittest.Git(t, repo, "rev-parse", "sandbox/"+made.ID+"~1"); got != before || ran.Commit != head() {
				t.Errorf("the branch did not go on: %s is not %s", got, before)
			}
			if _, err := e.c.CallTool(t.Context(), &mcp.CallToolParams{Name: "environment_config", Arguments: map[string]any{"environment_id": e.id, "config": map[string]any{"network": "full"}}}); !isInvalid(err) {
				t.Errorf("an agent has widened the network: %v", err)
			}
			// What cannot be made leaves it as it was.
			if kind == "jail" {
				for tool, args := range map[string]map[string]any{"config": {"config": map[string]any{"base_image": "x"}}, "add_service": {"name": "db", "image": "x"}} {
					args["environment_id"] = e.id
					if _, err := e.c.CallTool(t.Context(), &mcp.CallToolParams{Name: "environment_" + tool, Arguments: args}); !isInvalid(err) {
						t.Errorf("%s: %v", tool, err)
					}
				}
			}
			// What somebody else removes comes back with its work.
			if kind != "jail" {
				before := head()
				if err := eng.ContainerRemove(t.Context(), "sandbox-agent-sandbox-"+made.ID, container.RemoveOptions{Force: true}); err != nil {
					t.Error(err)
				}
				if e.ok("run_cmd", map[string]any{"command": "tail -n 1 t; echo again >>t"}, &ran); ran.Stdout != "bmore\n" || gittest.Git(t, repo, "rev-parse", "sandbox/"+made.ID+"~1") != before {
					t.Errorf("%+v", ran)
				}
			}
			if log, _, _ := e.call("log", map[string]any{}); !strings.Contains(log, "cmd: pwd") || !strings.Contains(log, "Write d/é b") {
				t.Error(log)
			}
			if diff, _, _ := e.call("diff", map[string]any{}); !strings.Contains(diff, "+more") && !strings.Contains(diff, "bmore") {
				t.Error(diff)
			}
			e.ok("update", map[string]any{"title": "Another"}, nil)
			// The same title is another environment.
			if kind == "jail" {
				var second envMade
				e.id = ""
				if e.ok("create", map[string]any{"title": title, "from_git_ref": "main"}, &second); second.ID == made.ID || second.ID == "" {
					t.Errorf("%+v", second)
				}
				for _, ref := range []string{"--upload-pack=x", "../../x", "nope"} {
					if _, err := e.c.CallTool(t.Context(), &mcp.CallToolParams{Name: "environment_create", Arguments: map[string]any{"title": "x", "from_git_ref": ref}}); !isInvalid(err) {
						t.Errorf("%s: %v", ref, err)
					}
				}
			}
			var listed struct {
				Environments []struct{ ID, Title, State string }
			}
			e.id = ""
			if e.ok("list", map[string]any{}, &listed); !slices.ContainsFunc(listed.Environments, func(i struct{ ID, Title, State string }) bool {
				return i.ID == made.ID && i.Title == "Another" && i.State == "running"
			}) {
				t.Errorf("%+v", listed)
			}
			if c := u.run("", "merge", made.ID); c.code != 0 {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
			gittest.Git(t, repo, "fsck", "--strict")
			if c := u.run("", "delete", "--force", "--all"); c.code != 0 {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
			if _, err := e.c.CallTool(t.Context(), &mcp.CallToolParams{Name: "environment_log", Arguments: map[string]any{"environment_id": made.ID}}); !isInvalid(err) {
				t.Errorf("of a deleted one: %v", err)
			}
			if c := u.run("", "snapshot", "rm", made.ID, "one"); c.code != 0 {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
		})
	}
}

func isInvalid(err error) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && e.Code == jsonrpc.CodeInvalidParams
}

func fetched(t *testing.T, url string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// rawRequests are lines of the protocol, with calls of tools.
func rawRequests(calls ...string) []string {
	all := []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
	}
	for i, c := range calls {
		all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, i+2, c))
	}
	return all
}

type rawAnswer struct {
	JSONRPC string
	ID      *int
	Error   *struct{ Code int }
	Result  struct {
		Instructions string
		Tools        []struct{ Name string }
		IsError      bool
		Content      []struct{ Text string }
	}
}

// raw speaks the protocol by lines: each request waits for the answer of the one before.
func raw(u *user, lines []string, args ...string) map[int]rawAnswer {
	u.t.Helper()
	in, keys, err := os.Pipe()
	if err != nil {
		u.t.Fatal(err)
	}
	defer in.Close()
	p := u.startWith(in, append([]string{"mcp"}, args...)...)
	for _, line := range lines {
		if _, err := keys.WriteString(line + "\n"); err != nil {
			u.t.Fatal(err)
		}
		var q struct{ ID *int }
		if json.Unmarshal([]byte(line), &q) != nil || q.ID == nil {
			continue
		}
		want := fmt.Sprintf(`"id":%d,`, *q.ID)
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(p.out.String(), want) && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	_ = keys.Close()
	c := p.wait()
	answers := map[int]rawAnswer{}
	for line := range strings.Lines(c.stdout) {
		var a rawAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.JSONRPC != "2.0" {
			u.t.Errorf("%q is not of the protocol", line)
		}
		if a.ID != nil {
			answers[*a.ID] = a
		}
	}
	return answers
}

// By lines of the protocol: one environment at a time, which needs no name, and what is asked without an engine.
func TestMCPEnvironmentsRaw(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t, "TMPDIR="+t.TempDir())
	repo := u.newRepo()
	run := func(command string) string {
		return `{"name":"environment_run_cmd","arguments":{"command":"` + command + `"}}`
	}
	got := raw(u, rawRequests(
		run("true"), // there is none yet
		`{"name":"environment_create","arguments":{"title":"one"}}`,
		run("echo 2 >f"),
		`{"name":"environment_create","arguments":{"title":"two"}}`, // refused
		`{"name":"environment_create","arguments":{"title":"two","allow_replace":true}}`,
		run("echo 3 >g"),
		`{"name":"environment_list","arguments":{}}`,
		run("cd /nowhere"),
		`{"name":"environment_log","arguments":{"environment_id":"nobodys"}}`,
		`{"name":"environment_run_cmd","arguments":{"command":"true","shell":"python"}}`,
	), "--tools", "env", "--single", "--runtime", "jail")
	if a := got[0]; a.Result.Instructions == "" || len(a.Result.Instructions) > 2000 || !strings.Contains(a.Result.Instructions, "/workspace") {
		t.Errorf("%+v", a)
	}
	if len(got[1].Result.Tools) != 15 {
		t.Errorf("%+v", got[1].Result.Tools)
	}
	for id, want := range map[int]struct {
		code   int
		failed bool
	}{2: {code: -32602}, 3: {}, 4: {}, 5: {failed: true}, 6: {}, 7: {}, 8: {}, 9: {failed: true}, 10: {code: -32602}, 11: {code: -32602}} {
		a, code := got[id], 0
		if a.Error != nil {
			code = a.Error.Code
		}
		if code != want.code || a.Result.IsError != want.failed {
			t.Errorf("%d: %+v", id, a)
		}
	}
	if a := got[8]; len(a.Result.Content) == 0 || !strings.Contains(a.Result.Content[0].Text, `"id":"one"`) || !strings.Contains(a.Result.Content[0].Text, `"current":"two"`) {
		t.Errorf("%+v", a)
	}
	if gittest.Git(t, repo, "show", "sandbox/one:f") != "2" || gittest.Git(t, repo, "show", "sandbox/two:g") != "3" {
		t.Error("the work is not where it belongs")
	}
	// Another server, without an engine: the tools are there, and jails.
	u.env = append(u.env, "DOCKER_HOST=unix:///nope")
	got = raw(u, rawRequests(
		`{"name":"environment_list","arguments":{}}`,
		`{"name":"environment_create","arguments":{"title":"x"}}`,
		`{"name":"environment_run_cmd","arguments":{"environment_id":"one","command":"cat f"}}`,
		`{"name":"environment_open","arguments":{"environment_id":"nobodys"}}`,
	), "--tools", "all")
	if len(got[1].Result.Tools) != 19 || got[2].Result.IsError || !got[3].Result.IsError || got[4].Result.IsError {
		t.Errorf("%+v", got)
	}
	if c := u.run("", "delete", "--force", "--all"); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
}

// The real Claude Code works in an environment that it makes, and what it did is on a branch of the user's repository.
func TestMCPEnvironmentsClaude(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t, "TMPDIR="+t.TempDir())
	repo, home := u.newRepo(), t.TempDir()
	call := func(tool string, input map[string]string) reply {
		input["explanation"] = "why"
		return reply{Tool: "mcp__sandbox__environment_" + tool, Input: input}
	}
	port, results := scriptedModel(t, modelServer,
		call("create", map[string]string{"title": "Greet the world"}),
		call("file_write", map[string]string{"target_file": "greet.sh", "contents": "echo hello\n"}),
		call("file_edit", map[string]string{"target_file": "greet.sh", "search_text": "hello", "replace_text": "hello, world"}),
		call("run_cmd", map[string]string{"command": "sh greet.sh | tee said"}),
	)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &syncBuffer{}
	script := "claude mcp add sandbox -- sandbox-agent mcp --tools env --single --runtime jail\nANTHROPIC_BASE_URL=http://127.0.0.1:" + port + " ANTHROPIC_API_KEY=" + claudeKey +
		" CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 claude -p go --model " + claudeModel + " --allowedTools mcp__sandbox </dev/null"
	if err := proc.Run(ctx, proc.Spec{
		Argv: []string{"sh", "-ec", script}, Dir: u.dir, Env: append(slices.Clone(u.env), "HOME="+home, "PATH="+agentCLIs(t)+":"+os.Getenv("PATH")), Stdout: out, Stderr: out,
	}); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if got := results(); !slices.ContainsFunc(got, func(r string) bool { return strings.Contains(r, "sandbox-agent diff greet-the-world") }) {
		t.Errorf("%q reached the model: %s", got, out)
	}
	if got := gittest.Git(t, repo, "show", "sandbox/greet-the-world:said"); got != "hello, world" {
		t.Errorf("%q: %s", got, out)
	}
	if c := u.run("", "delete", "--force", "greet-the-world"); c.code != 0 {
		t.Errorf("exit code %d", c.code)
	}
}

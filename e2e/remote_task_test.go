//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const keptToken = "kept-token-0123456789"

// kept is a task on a remote of its own, which several users (machines) work on.
type kept struct {
	t      *testing.T
	remote *gittest.Server
	repo   string // URL
	bare   string // the same on disk
	id     string

	started atomic.Int32 // boxes
}

// newKept makes a remote that is sound at the end, whatever the test did to the boxes.
func newKept(t *testing.T, files map[string]string) *kept {
	t.Helper()
	k := &kept{t: t, remote: gittest.NewAt(t, keptToken, hostAddress(t)), id: workorder.NewTaskID()}
	k.repo = k.remote.Create(t, "r.git", files)
	k.bare = filepath.Join(k.remote.Root, "r.git")
	k.count(t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context()) // which has ended when clean-up runs
		if out, err := proc.Output(ctx, proc.Spec{Argv: []string{"git", "-C", k.bare, "fsck", "--strict", "--no-dangling"}}); err != nil {
			t.Errorf("the remote is not sound: %v %s", err, out)
		}
	})
	return k
}

// machine is a user with a state folder of their own, who may use the remote.
func (k *kept) machine(t *testing.T) *user {
	t.Helper()
	return newCarefulUser(t, "SANDBOX_AGENT_GIT_TOKEN="+keptToken)
}

// project writes a project on the remote. Saves are frequent unless head says otherwise.
func (k *kept) project(u *user, head, script string) string {
	u.t.Helper()
	if !strings.Contains(head, "checkpoint_interval") {
		head = "checkpoint_interval: 1s\n" + head
	}
	return u.project(scripted("repo: "+k.repo+"\n"+head, script))
}

// create is the command that starts the task.
func (k *kept) create(project string, more ...string) []string {
	return append([]string{"create", "--task", "x", "--task-id", k.id, "-p", project}, more...)
}

// begin starts the task and waits until its agent is busy.
func (k *kept) begin(u *user, project string) *started {
	u.t.Helper()
	s := u.start("", k.create(project)...)
	s.waitFor("agent-is-busy")
	return s
}

// ref is what the remote has under a name; "": nothing.
func (k *kept) ref(t *testing.T, name string) string {
	t.Helper()
	return gittest.Git(t, k.bare, "for-each-ref", "--format=%(objectname)", name)
}

// branch is the task's only branch on the remote; "": there is none.
func (k *kept) branch(t *testing.T) string {
	t.Helper()
	refs := strings.Fields(gittest.Git(t, k.bare, "for-each-ref", "--format=%(refname:short)", "refs/heads/agent/"))
	if len(refs) > 1 {
		t.Fatalf("branches %v", refs)
	}
	return strings.Join(refs, "")
}

// show is a file of a commit on the remote.
func (k *kept) show(t *testing.T, at, path string) string {
	t.Helper()
	return gittest.Git(t, k.bare, "show", at+":"+path)
}

// holds waits until the remote's ref has the path.
func (k *kept) holds(t *testing.T, ref, path string) {
	t.Helper()
	eventually(t, ref+" has "+path, func() bool {
		return k.ref(t, ref) != "" && strings.Contains("\x00"+gittest.Git(t, k.bare, "ls-tree", "-r", "-z", "--name-only", ref)+"\x00", "\x00"+path+"\x00")
	})
}

// at waits until the branch on the remote has a commit of that subject as its last.
func (k *kept) at(t *testing.T, subject string) {
	t.Helper()
	eventually(t, "the branch is at "+subject, func() bool {
		b := k.branch(t)
		return b != "" && gittest.Git(t, k.bare, "show", "--no-patch", "--format=%s", b) == subject
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 1800 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("not within three minutes: %s", what)
}

// state is what the remote knows of the task.
func (k *kept) state(t *testing.T) *workorder.State {
	t.Helper()
	s, err := workorder.DecodeState([]byte(k.show(t, workorder.StateRef(k.id), workorder.StateFile)), k.id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// box is the task's running container.
func (k *kept) box(t *testing.T) string {
	t.Helper()
	cs := ours(t, k.id)
	if len(cs) != 1 {
		t.Fatalf("%d containers of %s", len(cs), k.id)
	}
	return cs[0].ID
}

// kill ends the box without a warning.
func (k *kept) kill(t *testing.T) {
	t.Helper()
	if err := eng.ContainerKill(t.Context(), k.box(t), "KILL"); err != nil {
		t.Fatal(err)
	}
}

// in runs a command as root in the box.
func (k *kept) in(t *testing.T, argv ...string) {
	t.Helper()
	e, err := eng.ContainerExecCreate(t.Context(), k.box(t), container.ExecOptions{Cmd: argv})
	if err == nil {
		err = eng.ContainerExecStart(t.Context(), e.ID, container.ExecStartOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, strings.Join(argv, " ")+" ends in the box", func() bool {
		i, err := eng.ContainerExecInspect(t.Context(), e.ID)
		if err == nil && !i.Running && i.ExitCode != 0 {
			t.Fatalf("%v in the box: exit code %d", argv, i.ExitCode)
		}
		return err == nil && !i.Running
	})
}

// tell lets an agent go on that waits for the word.
func (k *kept) tell(t *testing.T, word string) {
	t.Helper()
	tell(t, k.box(t), word)
}

// count counts the containers that are started for the task, as it happens: what
// the engine remembers of that is little.
func (k *kept) count(t *testing.T) {
	t.Helper()
	msgs, _ := eng.Events(t.Context(), events.ListOptions{
		Filters: filters.NewArgs(filters.Arg("type", "container"), filters.Arg("event", "start"), filters.Arg("label", workorder.LabelTask+"="+k.id)),
	})
	go func() {
		for {
			select {
			case <-msgs:
				k.started.Add(1)
			case <-t.Context().Done():
				return
			}
		}
	}()
}

// boxes checks how many containers were ever started for the task.
func (k *kept) boxes(t *testing.T, want int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d boxes were started", want), func() bool { return k.started.Load() >= want })
	if n := k.started.Load(); n > want {
		t.Errorf("%d boxes were started, want %d", n, want)
	}
}

// ended checks the result of a call against its exit code, the contract and the
// remote, and returns it.
func (k *kept) ended(u *user, c call, status workorder.Status, by workorder.EndedBy) *workorder.Result {
	u.t.Helper()
	r := u.result(k.id)
	if r.Status != status || r.EndedBy != by {
		u.t.Errorf("%s by %s (%s), want %s by %s", r.Status, r.EndedBy, r.Reasons, status, by)
	}
	if want := workorder.ExitCode(status, by); c.code != want {
		u.t.Errorf("exit code %d, want %d", c.code, want)
	}
	k.valid(u, r)
	last := k.state(u.t).Last()
	switch {
	case last == nil || last.ID != r.AttemptID || last.Number != r.Attempt:
		u.t.Errorf("the remote's last attempt is %+v, the result's is %d %s", last, r.Attempt, r.AttemptID)
	case status == workorder.StatusLost: // nobody was left to say so there
	case last.Status != status || last.EndedBy != by || last.HeadSHA != r.HeadSHA:
		u.t.Errorf("the remote says %s by %s at %s, the result says %s", last.Status, last.EndedBy, last.HeadSHA, r.HeadSHA)
	case k.state(u.t).Lease != nil:
		u.t.Errorf("the lease is still held by %+v", k.state(u.t).Lease)
	case r.Pushed && k.ref(u.t, workorder.BranchRef(r.Branch)) != r.HeadSHA:
		u.t.Errorf("the branch is at %s, the result says %s", k.ref(u.t, workorder.BranchRef(r.Branch)), r.HeadSHA)
	}
	return r
}

// read is a user's result of the task, which may have a box of another user.
func (k *kept) read(u *user) *workorder.Result {
	u.t.Helper()
	b, err := os.ReadFile(resultPath(u.t, u, k.id))
	if err != nil {
		u.t.Fatal(err)
	}
	r, err := workorder.DecodeResult(b)
	if err != nil {
		u.t.Fatal(err)
	}
	return r
}

// valid checks the written result.json against the contract.
func (k *kept) valid(u *user, r *workorder.Result) {
	u.t.Helper()
	b, err := os.ReadFile(resultPath(u.t, u, k.id))
	if err != nil {
		u.t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var whole workorder.Result
	if err := dec.Decode(&whole); err != nil {
		u.t.Errorf("result.json: %v", err)
	}
	var keys, want map[string]json.RawMessage
	empty, err := (&workorder.Result{}).Encode()
	if err == nil {
		err = json.Unmarshal(empty, &want)
	}
	if err == nil {
		err = json.Unmarshal(b, &keys)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	for key := range want {
		if _, ok := keys[key]; !ok {
			u.t.Errorf("result.json lacks %s", key)
		}
	}
	if !slices.Contains(workorder.Statuses(), r.Status) || !slices.Contains(workorder.Endings(), r.EndedBy) {
		u.t.Errorf("%s by %s is not in the contract", r.Status, r.EndedBy)
	}
	if r.Resumable != workorder.Resumable(r.Status, r.EndedBy) {
		u.t.Errorf("resumable %v of %s by %s", r.Resumable, r.Status, r.EndedBy)
	}
	next := "sandbox-agent continue " + k.id
	if r.Resumable != strings.HasPrefix(r.NextCommand, next) || r.NextCommand == "" {
		u.t.Errorf("resumable %v, and the next command is %q", r.Resumable, r.NextCommand)
	}
	if r.ResumeAt != nil && r.NextCommand != next+" --wait" {
		u.t.Errorf("it can go on at %s, and the next command is %q", r.ResumeAt, r.NextCommand)
	}
	if (len(r.Reasons) == 0) != (r.Status == workorder.StatusSuccess) {
		u.t.Errorf("%s because of %q", r.Status, r.Reasons)
	}
}

// printed are the lines that the agent printed with a word before them.
func (c call) printed(word string) (lines []string) {
	for line := range strings.Lines(c.stdout) {
		if _, text, ok := strings.Cut(line, "agent stdout: "+word+" "); ok {
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	return lines
}

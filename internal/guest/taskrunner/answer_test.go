package taskrunner

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const forgeToken = "ghp_entrypoint0123456789"

// attempt is one box's parts around feedback, without the box: real git, a forge, and an agent that is a function.
type attempt struct {
	*rootgit.Repository
	env     *workorder.Envelope
	space   *rootgit.Workspace
	task    *Task
	answers *Answerer
	cloned  rootgit.CloneResult
	landed  func() // between the landing and the answers
}

func newAttempt(t *testing.T, o workorder.Order, token string) *attempt {
	t.Helper()
	env := &workorder.Envelope{Order: o, Git: &workorder.GitCredential{Token: "tok"}, ForgeToken: token}
	mask := redact.Named(map[string]string{"forge-token": token, "git-token": "tok"})
	dir := t.TempDir()
	space := &rootgit.Workspace{Dir: filepath.Join(dir, "workspace"), Home: t.TempDir(), GitConfig: filepath.Join(dir, "gitconfig")}
	if err := os.Mkdir(space.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	quiet := func(workorder.Event) {}
	a := &attempt{env: env, space: space, Repository: rootgit.New(slog.New(slog.DiscardHandler), env, rootgit.Config{
		Out: filepath.Join(
			dir,
			"out",
		),
		Git:   filepath.Join(dir, "git"),
		SSH:   filepath.Join(dir, "ssh"),
		Space: space,
		User:  space.User,
		Emit:  quiet,
		Clean: mask.String,
	})}
	t.Cleanup(a.Close)
	a.task = New(env, nil, runner.Config{Order: &env.Order, Emit: quiet, Redact: mask})
	a.answers = &Answerer{
		Forge: &Forge{Order: &env.Order, Token: token, Log: slog.New(slog.DiscardHandler)},
		Task:  a.task,
		Repo:  a.Repository,
	}
	var err error
	if a.cloned, err = a.Clone(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.cloned.Restored != nil {
		a.task.Continue(a.cloned)
		t.Cleanup(func() {
			if a.task.answers != nil {
				_ = os.RemoveAll(filepath.Dir(filepath.Dir(a.task.answers.File)))
			}
		})
	}
	return a
}

func (a *attempt) commit(t *testing.T, file, subject, trailer string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.space.Dir, file), []byte(subject), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, a.space.Dir, "add", "-A")
	gittest.Git(t, a.space.Dir, "commit", "-qm", subject, "-m", trailer)
}

// end lands, answers and releases as boot does.
func (a *attempt) end(t *testing.T, status workorder.Status) (r workorder.Result, why string) {
	t.Helper()
	review := a.cloned.State.Feedback(a.env.Order.Mode)
	end := func([]workorder.Commit, string) workorder.Attempt { return workorder.Attempt{Status: status} }
	if review != nil {
		end = nil
	}
	l := a.Land(t.Context(), a.cloned.BaseSHA, end)
	if l.Err != nil {
		t.Fatal(l.Err)
	}
	r = workorder.Result{
		Status:  status,
		EndedBy: workorder.EndedByAgent,
		Attempt: a.cloned.Attempt,
		Proof:   &workorder.Proof{Head: l.Head, Checks: []workorder.CheckProof{{Name: "test", Head: &workorder.CheckRun{Passed: true}}}},
	}
	l.CopyTo(&r)
	if review != nil {
		if a.landed != nil {
			a.landed()
		}
		var err error
		if r.Review, err = a.answers.Answers(t.Context(), review, l.Head); err != nil {
			t.Fatal(err)
		}
		if r.Review, why, err = a.answers.Post(t.Context(), review, &r); err != nil {
			t.Fatal(err)
		}
		a.answers.RemoveAnswered(&r)
	}
	if err := a.Release(t.Context(), workorder.Attempt{Status: status}); err != nil {
		t.Fatal(err)
	}
	return r, why
}

// other is another box that wants the task, and what it gets.
func other(t *testing.T, o workorder.Order) error {
	t.Helper()
	p := rootgit.New(
		slog.New(slog.DiscardHandler),
		&workorder.Envelope{Order: o, Git: &workorder.GitCredential{Token: "tok"}},
		rootgit.Config{
			Git: t.TempDir(), Space: &rootgit.Workspace{}, Emit: func(workorder.Event) {},
		},
	)
	if err := p.Authenticate(); err != nil {
		return err
	}
	base, sha, err := p.Claimer.Fetch(t.Context())
	if err == nil {
		_, err = p.Claimer.Claim(t.Context(), base, sha)
	}
	return err
}

// Feedback goes its whole way through what boot is given: into the prompt and the state, through an attempt that is cut
// short, to the answers of the next one.
func TestFeedbackThroughTwoAttempts(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, "tok")
	url := srv.Create(t, "r.git", nil)
	f := forgetest.New(forgetest.Options{Owner: "o", Name: "r"})
	f.AddUser("ann", forgetest.User{Permission: "write"})
	f.AddUser("runner", forgetest.User{Permission: "write"})
	f.AddToken(forgeToken, "runner")
	web := httptest.NewServer(f)
	t.Cleanup(web.Close)
	o := workorder.Order{
		Version:                   workorder.Version,
		TaskID:                    "T-A1B2C3D4",
		Mode:                      workorder.ModeCreate,
		Task:                      "Make it",
		Repo:                      url,
		CloneURL:                  url,
		TargetBranch:              "agent/T-A1B2C3D4-x",
		AttemptID:                 workorder.NewAttemptID(),
		Author:                    workorder.Identity{Name: "Agent", Email: "agent@example.org"},
		CheckpointIntervalSeconds: 3, // so often a box says that it lives
		PR:                        &workorder.PullRequest{APIURL: web.URL + "/api/v3", Repository: "o/r"},
	}
	first := newAttempt(t, o, forgeToken)
	first.commit(t, "a", "Make it", "Addresses: 1")
	made, _ := first.end(t, workorder.StatusSuccess)

	f.SetBranch(o.TargetBranch, made.HeadSHA)
	n := f.AddPull("runner", "x", "", forgetest.Pull{Head: o.TargetBranch, Base: "main"})
	review := &workorder.Review{PR: n}
	for i, text := range []string{"Off by one, " + forgeToken, "Why?"} {
		review.Items = append(review.Items, workorder.ReviewItem{
			Number:  i + 1,
			Source:  workorder.ReviewFromThread,
			Command: true,
			Thread:  f.AddThread(n, forgetest.Thread{Path: "a", Line: 1}, "ann", text),
			Notes:   []workorder.ReviewNote{{Author: "ann", Trusted: true, Text: text}},
		})
	}
	o.Mode, o.Task, o.Review, o.AttemptID = workorder.ModeRevise, "", review, workorder.NewAttemptID()
	cut := newAttempt(t, o, forgeToken)
	cut.env.Order.Task = cut.cloned.State.Task
	if p := cut.task.cfg.Prompt; !strings.Contains(p, "Off by one, [redacted:forge-token]") || !strings.Contains(p, cut.task.answers.File) {
		t.Errorf("the prompt:\n%s", p)
	}
	if !slices.Contains(cut.task.env(workorder.SecretForAgent), "SANDBOX_AGENT_ANSWERS="+cut.task.answers.File) ||
		slices.ContainsFunc(
			cut.task.env(workorder.SecretForValidate),
			func(kv string) bool { return strings.HasPrefix(kv, "SANDBOX_AGENT_ANSWERS=") },
		) {
		t.Error("only the agent receives the file's path")
	}
	cut.commit(t, "a", "Count right", "Addresses: 1")
	begun, why := cut.end(t, workorder.StatusTimeout)
	if len(begun.Review) != 2 || !slices.Equal(begun.Review[0].Commits, []string{begun.HeadSHA}) || begun.Review[0].Replied ||
		!strings.Contains(why, string(workorder.StatusTimeout)) {
		t.Fatalf("%+v, %q", begun.Review, why)
	}

	o.Mode, o.Review, o.AttemptID = workorder.ModeContinue, nil, workorder.NewAttemptID()
	// An attempt that is done and cannot say so leaves the feedback for who can.
	mute := newAttempt(t, o, "")
	if _, why := mute.end(t, workorder.StatusSuccess); !strings.Contains(why, "SANDBOX_AGENT_GIT_TOKEN") {
		t.Errorf("%q", why)
	}
	o.AttemptID = workorder.NewAttemptID()
	next := newAttempt(t, o, forgeToken)
	if p := next.task.cfg.Prompt; !strings.Contains(p, "Why?") {
		t.Errorf("the prompt:\n%s", p)
	}
	if err := os.WriteFile(next.task.answers.File, []byte("2: Because of "+forgeToken+", @ann.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next.landed = func() {
		// Until the answers are posted no other attempt gets the task, and the feedback with it.
		o := o
		o.AttemptID = workorder.NewAttemptID()
		if err := other(t, o); !errors.As(err, new(*remote.LeaseHeldError)) {
			t.Errorf("another box that wants the task gets %v", err)
		}
	}
	done, why := next.end(t, workorder.StatusSuccess)
	threads := f.Threads(n)
	if why != "" || !slices.Equal(done.Review[0].Commits, []string{begun.HeadSHA}) || !done.Review[0].Resolved || !threads[0].Resolved ||
		threads[1].Resolved ||
		len(threads[0].Comments) != 2 ||
		len(threads[1].Comments) != 2 {
		t.Fatalf("%q, %+v, %+v", why, done.Review, threads)
	}
	if said := threads[1].Comments[1].Body; !strings.Contains(said, "Because of ") || strings.Contains(said, forgeToken) ||
		strings.Contains(said, "@ann") {
		t.Errorf("the reason: %q", said)
	}
	o.AttemptID = workorder.NewAttemptID()
	if last := newAttempt(
		t,
		o,
		forgeToken,
	); last.cloned.State.Review != nil || strings.Contains(last.task.cfg.Prompt, "Why?") ||
		last.task.answers != nil {
		t.Errorf("answered, and still there: %+v", last.cloned.State.Review)
	}
	for _, v := range f.Violations() {
		t.Error(v)
	}
}

// Files of the agent's user are read through its folder, to which no other user can write.
func TestAnswersAreTheUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	const uid = 65534
	a, err := runner.NewAnswers(&proc.Credential{UID: uid, GID: uid})
	if err != nil {
		t.Fatal(err)
	}
	outer := filepath.Dir(filepath.Dir(a.File))
	t.Cleanup(func() { _ = os.RemoveAll(outer) })
	if err := os.WriteFile(a.File, []byte("1: Ours.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Read(); err == nil {
		t.Errorf("somebody else's file was read: %v", got)
	}
	if err := os.Chown(a.File, uid, uid); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Read(); err != nil || got[1] != "Ours." {
		t.Errorf("%v, %v", got, err)
	}
}

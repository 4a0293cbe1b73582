package app

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// WriteProjectRequest asks for a project file that an agent writes.
type WriteProjectRequest struct {
	Flags  resolve.Flags // choose the agent, its limits and its sandbox
	Rounds int           // how often the agent may try
	PR     bool          // open a pull request with the file on the repository's remote
}

// defaultProjectBudget limits the cost of the agent, in US dollars, if the user gives no limit.
const defaultProjectBudget = 5.0

// ProjectReport is the outcome of Tasks.WriteProject.
type ProjectReport struct {
	Accepted bool       `json:"accepted"`
	Rounds   int        `json:"rounds"`
	Setup    SetupTimes `json:"setup"`
	// Checks are those of the last proposal; empty if its setup failed.
	Checks []ProjectCheck `json:"checks"`
	// Problems say why the last proposal was not accepted.
	Problems []ProjectProblem `json:"problems"`
	// Message is the agent's last one.
	Message string   `json:"message"`
	CostUSD *float64 `json:"cost_usd"` // nil if unknown
	// Project is the text of the last proposal; empty if there is none.
	Project string `json:"project"`
	// PullRequest is nil if none was asked for.
	PullRequest *workorder.PR `json:"pr,omitempty"`
	// Draft is what was detected in the repository.
	Draft *detect.Draft `json:"-"`
	// Agent is the result of the agent's last attempt.
	Agent *workorder.Result `json:"-"`
}

// SetupTimes are the durations of services, packages, tools and setup. 0 means that they did not work.
type SetupTimes struct {
	ColdMS   int64 `json:"cold_ms"`   // from scratch
	CachedMS int64 `json:"cached_ms"` // with the setup cache
}

// ProjectCheck is a check of a proposal, on the commit without changes.
type ProjectCheck struct {
	Name       string `json:"name"`
	Command    string `json:"command"`
	Passed     bool   `json:"passed"`
	DurationMS int64  `json:"duration_ms"`
}

// ProjectProblem is a reason why a proposal was not accepted.
type ProjectProblem struct {
	Key    string `json:"key"` // of the project file, such as validate.test; "file" for the file itself
	Reason string `json:"reason"`
	Log    string `json:"log,omitempty"` // end of the output
}

func (p ProjectProblem) String() string {
	s := p.Key + ": " + p.Reason
	if p.Log != "" {
		s += "\n" + strings.TrimRight(p.Log, "\n")
	}
	return s
}

//go:embed writeproject.md
var writeProjectTask string

// projectWriter has an agent write a project file for the last commit of a repository, and judges it. It changes nothing: its
// tasks are removed with their branches.
type projectWriter struct {
	*Tasks
	WriteProjectRequest
	repo *localrepo.Repo
	base string // what the tasks start from
	// origin is the URL of the remote for a pull request.
	origin string
	dir    string // for project files
	text   string // of the draft
	ProjectReport
}

// WriteProject lets an agent write the project file of the current directory's repository, and sends it back until it
// works or the rounds are used up.
func (t *Tasks) WriteProject(ctx context.Context, r WriteProjectRequest) (_ *ProjectReport, err error) {
	w := &projectWriter{Tasks: t, WriteProjectRequest: r}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "sandbox-agent-project-"); err != nil {
		return nil, fmt.Errorf("create a directory for project files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(w.dir)) }()
	if err = w.rounds(ctx); err == nil && w.Accepted && w.PR {
		err = w.openPR(ctx)
	}
	return &w.ProjectReport, err
}

// open finds the repository and detects the draft.
func (w *projectWriter) open(ctx context.Context) error {
	root, err := w.RepoRoot()
	if err != nil {
		return err
	}
	if root == "" {
		return exiterr.New(workorder.ExitNoProject, errors.New("the current directory is not in a git repository"),
			"create one (git init, and a first commit)")
	}
	if w.repo, err = localrepo.Open(ctx, root); err != nil {
		return err
	}
	if w.base, err = w.repo.Base(ctx, ""); err != nil {
		return err
	}
	commit, err := w.repo.Commit(ctx, w.base)
	if err != nil {
		return err
	}
	tree, err := w.repo.Tree(ctx, commit)
	if err != nil {
		return err
	}
	w.Draft = detect.Detect(tree, filepath.Base(w.repo.Path))
	if w.PR {
		out, err := localrepo.Git(w.repo.Path).Output(ctx, "config", "--local", "--get", "remote.origin.url")
		if w.origin = strings.TrimSpace(string(out)); err != nil || w.origin == "" {
			return Usagef("a pull request needs a remote: %s has no origin", w.repo.Path)
		}
	}
	w.text = w.Draft.YAML()
	return nil
}

func (w *projectWriter) rounds(ctx context.Context) (err error) {
	task, text := "", w.brief()
	defer func() { err = errors.Join(err, w.remove(ctx, task)) }()
	for !w.Accepted && w.ProjectReport.Rounds < w.WriteProjectRequest.Rounds {
		w.ProjectReport.Rounds++
		w.Say(fmt.Sprintf("round %d of %d: the agent writes the project file", w.ProjectReport.Rounds, w.WriteProjectRequest.Rounds))
		out, err := w.write(ctx, task, text)
		task = cmp.Or(out.Task, task)
		if err != nil {
			return err
		}
		if err := w.agentEnded(ctx, out.Result); err != nil {
			return err
		}
		if err := w.judge(ctx); err != nil {
			return err
		}
		w.Accepted = len(w.Problems) == 0
		if !w.Agent.Status.Worked() {
			if !w.Accepted {
				w.Problems = append([]ProjectProblem{{Key: "agent", Reason: w.Agent.Reasons.String()}}, w.Problems...)
			}
			break
		}
		text = w.feedback()
	}
	return nil
}

// brief is the text of the agent's task.
func (w *projectWriter) brief() string {
	var b strings.Builder
	b.WriteString(writeProjectTask)
	fmt.Fprintf(&b, "\n## Draft\n\n````yaml\n%s````\n", w.text)
	fmt.Fprintf(&b, "\n## All keys\n\n%s", projects.Markdown())
	return b.String()
}

// feedback is the text of the agent's next round.
func (w *projectWriter) feedback() string {
	var b strings.Builder
	b.WriteString("Your `.sandbox-agent.yaml` was judged, and does not work yet. Correct it, and commit it.\n")
	for _, p := range w.Problems {
		fmt.Fprintf(&b, "\n- `%s`: %s\n", p.Key, p.Reason)
		if p.Log != "" {
			fmt.Fprintf(&b, "\n  The end of its output:\n\n````\n%s\n````\n", strings.TrimRight(p.Log, "\n"))
		}
	}
	return b.String()
}

// write runs the agent: in a new task, or in the next attempt of one.
func (w *projectWriter) write(ctx context.Context, task, text string) (TaskOutcome, error) {
	r, err := w.request("draft", w.text, text, nil)
	if err != nil {
		return TaskOutcome{}, err
	}
	r.Flags.Change = func(p *projects.Project) {
		p.Detected = true // what does not work is no error
		p.Validate, p.Dev = nil, nil
		p.MaxBudgetUSD = cmp.Or(p.MaxBudgetUSD, new(defaultProjectBudget))
	}
	if task == "" {
		return w.Create(ctx, r)
	}
	r.Task = task
	return w.Continue(ctx, r)
}

// request is the request of a task with a project file of its own.
func (w *projectWriter) request(name, project, text string, values map[string]string) (r TaskRequest, err error) {
	file := filepath.Join(w.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(project), 0o600); err != nil {
		return r, fmt.Errorf("write a project file: %w", err)
	}
	r = TaskRequest{Request: tasks.Request{Text: text}, Flags: w.Flags, Title: "Write the project file"}
	f := &r.Flags
	f.Project, f.ProjectSource, f.Out, f.Keep, f.Detach = file, resolve.Named, "", false, false
	f.Values, f.Sources = maps.Clone(f.Values), maps.Clone(f.Sources)
	given := map[string]string{"repo": w.repo.Path, "branch": w.base}
	maps.Copy(given, values)
	for flag, value := range given {
		f.Values[flag], f.Sources[flag] = value, "project init"
	}
	return r, nil
}

// agentEnded takes the agent's proposal out of the result of its attempt.
func (w *projectWriter) agentEnded(ctx context.Context, res *workorder.Result) error {
	w.Agent, w.Message = res, cmp.Or(res.Agent.Final, w.Message)
	if c := res.Usage.CostUSD; c != nil {
		w.CostUSD = new(*cmp.Or(w.CostUSD, new(float64)) + *c)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case res.HeadSHA == "":
		return nil
	}
	tree, err := w.repo.Tree(ctx, res.HeadSHA)
	if err != nil {
		return err
	}
	if st, err := fs.Stat(tree, projects.DefaultFile); err == nil && !st.Mode().IsRegular() {
		w.Project = "" // problemsOfFile reports it
		return nil
	}
	b, err := fs.ReadFile(tree, projects.DefaultFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the agent's project file: %w", err)
	}
	w.Project = string(b)
	return nil
}

// remove removes a task of this command with its branch, also after an interruption.
func (w *projectWriter) remove(ctx context.Context, task string) error {
	if task == "" {
		return nil
	}
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	_, err := w.Remove(ctx, task, Removal{Force: true, Branch: true})
	if exiterr.Code(err) == workorder.ExitNotFound {
		return nil
	}
	return err
}

// openPR pushes the accepted file to the remote in a task whose agent only commits it. The task's sandbox runs the checks once more, and
// opens the pull request. The task stays.
func (w *projectWriter) openPR(ctx context.Context) error {
	w.Say("the pull request")
	const title = "Add a project file for sandbox-agent"
	r, err := w.request("accepted", w.Project, title, map[string]string{
		"repo": w.origin, "harness": workorder.HarnessCommand,
		"command": fmt.Sprintf("echo %s | base64 -d >%[2]s && git add --force %[2]s && git commit --quiet --message %[3]q",
			base64.StdEncoding.EncodeToString([]byte(w.Project)), projects.DefaultFile, title),
	})
	if err != nil {
		return err
	}
	r.Title = title
	r.Flags.Change = func(p *projects.Project) {
		p.Secrets = nil // the file itself needs none
		p.PR = cmp.Or(p.PR, &workorder.PullRequest{})
	}
	out, err := w.Create(ctx, r)
	if err != nil {
		return err
	}
	if w.PullRequest = out.Result.PR; w.PullRequest == nil {
		res := out.Result
		return exiterr.New(workorder.ExitGit, fmt.Errorf("no pull request of task %s was opened (%s): %s", out.Task, res.Status,
			strings.Join(append([]string{res.Reasons.String()}, res.Warnings...), "; ")), "open it with: sandbox-agent pr open "+out.Task)
	}
	return nil
}

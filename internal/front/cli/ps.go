package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/upkeep"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// recent is how many finished tasks `ps` shows without --all.
	recent = 10
)

// statusUnknown is of a task whose engine does not answer, or is another one.
const statusUnknown = "unknown"

// taskState is a row of `ps`.
type taskState struct {
	Kind      string            `json:"kind"` // always "task"
	TaskID    string            `json:"task_id"`
	Project   string            `json:"project"`
	Status    string            `json:"status"` // starting, running, collecting, unknown, or a result's status
	Step      string            `json:"step"`
	Task      string            `json:"task"`
	Branch    string            `json:"branch"`
	CreatedAt time.Time         `json:"created_at"`
	Dir       string            `json:"dir"`
	Container string            `json:"container"`
	EndedBy   workorder.EndedBy `json:"ended_by,omitempty"`
	Attempt   int               `json:"attempt"`
	// Resumable reports that continue can continue it; a parked one at ResumeAt.
	Resumable bool       `json:"resumable"`
	ResumeAt  *time.Time `json:"resume_at"`
	// Engine is the address of the engine with its box, if it is not the present one.
	Engine string `json:"engine,omitempty"`
	// Kept reports that the stopped container was kept for inspection (--keep).
	Kept bool `json:"kept,omitempty"`
}

type psOptions struct{ all, json, sandboxes, allUsers bool }

func newPsCmd(a *App) *cobra.Command {
	o := &psOptions{}
	cmd := &cobra.Command{
		Use: "ps", Aliases: []string{"ls"}, Short: "List tasks and sandboxes", Args: cmdutil.NoArgs,
		Example: "  sandbox-agent ps\n  sandbox-agent ps --all --json\n  sandbox-agent ps --sandboxes --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), a) },
	}
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "include all finished tasks")
	cmd.Flags().BoolVar(&o.sandboxes, "sandboxes", false, "list sandboxes only")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON list: tasks, then sandboxes, told apart by kind")
	cmd.Flags().BoolVar(&o.allUsers, "all-users", false, "include sandboxes of other state directories on this engine")
	cmd.MarkFlagsMutuallyExclusive("all", "sandboxes")
	return cmd
}

func (o *psOptions) do(ctx context.Context, a *App) error {
	if o.sandboxes {
		return a.listSandboxes(ctx, o.json, o.allUsers)
	}
	st, err := a.Store()
	if err != nil {
		return err
	}
	records, err := st.List()
	if err != nil {
		fmt.Fprintln(a.Stderr, "warning: "+text.Clean(err.Error()))
		if h := cmdutil.Hint(err); h != "" {
			fmt.Fprintln(a.Stderr, "hint: "+text.Clean(h))
		}
	}
	there, engineErr := presentBoxes(ctx, a, st)
	rows := []taskState{}
	finished, hidden := 0, 0
	for _, r := range records {
		if r.Collected {
			if finished++; finished > recent && !o.all {
				hidden++
				continue
			}
		}
		rows = append(rows, stateOf(st, r, there, engineErr))
	}
	unknown := slices.ContainsFunc(rows, func(r taskState) bool { return r.Status == statusUnknown && r.Engine == "" })
	standalone, err := o.standalone(ctx, a, len(rows) == 0)
	switch {
	case engineErr != nil && unknown:
		err = engineErr
	case engineErr != nil && err == nil:
		a.Warn(engineErr.Error())
	}
	if o.json {
		all := make([]any, 0, len(rows)+len(standalone))
		for _, r := range rows {
			all = append(all, r)
		}
		for _, s := range standalone {
			all = append(all, s)
		}
		return errors.Join(a.JSON(all), err)
	}
	if len(standalone) > 0 && a.printSandboxes(standalone) == nil {
		fmt.Fprintln(a.Stdout)
	}
	return errors.Join(o.print(a, rows, hidden), err)
}

// standalone returns the standalone sandboxes. An engine that does not answer is an error if one of them may be on it, or
// if there is nothing else to list.
func (o *psOptions) standalone(ctx context.Context, a *App, alone bool) ([]sandboxRow, error) {
	if a.OpenSandboxes == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmdutil.EngineWait)
	defer cancel()
	all, err := a.allSandboxes(ctx, o.allUsers)
	if len(all) == 0 && !alone {
		return nil, nil
	}
	return all, a.unseen(all, err)
}

func (o *psOptions) print(a *App, rows []taskState, hidden int) error {
	if len(rows) == 0 {
		fmt.Fprintln(a.Stdout, "no tasks yet: start one with: sandbox-agent \"fix the flaky test\"")
		return nil
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "TASK\tPROJECT\tSTATUS\tAGE\tSTEP\tDESCRIPTION")
	resumable := false
	for _, r := range rows {
		resumable = resumable || r.Resumable
		if r.Status == string(workorder.StatusParked) && r.ResumeAt != nil {
			r.Status += " until " + text.Clock(*r.ResumeAt, time.Now())
		} else if r.Resumable {
			r.Status += " (resumable)"
		}
		if r.Engine != "" {
			r.Status += " (on another engine)"
		}
		if r.Kept {
			r.Status += " (kept)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.TaskID, text.Clean(r.Project), r.Status,
			cmdutil.Age(time.Since(r.CreatedAt)), text.Clean(r.Step), cmdutil.Clip(text.Clean(r.Task)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if resumable {
		fmt.Fprintln(a.Stdout, "`sandbox-agent continue TASK` goes on with a resumable or parked one")
	}
	if hidden > 0 {
		fmt.Fprintf(a.Stdout, "and %d older ones: --all lists them\n", hidden)
	}
	return nil
}

// present is the engine's part of the list.
type present struct {
	id    string // the engine's identity
	boxes map[boxKey]boxState
}

// presentBoxes lists the engine's boxes by task, with the step each is in.
func presentBoxes(ctx context.Context, a *App, st *store.Store) (*present, error) {
	ctx, cancel := context.WithTimeout(ctx, cmdutil.EngineWait)
	defer cancel()
	be, err := a.Engine()
	if err != nil {
		return nil, err
	}
	list, err := upkeep.OwnBoxes(ctx, be.Engine, st, nil)
	if err != nil {
		return nil, err
	}
	info, err := be.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	m := map[boxKey]boxState{}
	for _, b := range list {
		s := boxState{Box: b}
		s.step, s.ended = lastEvents(ctx, be.Engine, b.ID)
		m[boxKey{b.Labels[workorder.LabelTask], b.Labels[workorder.LabelAttempt]}] = s
	}
	return &present{info.Identity(), m}, nil
}

// boxKey identifies the box of an attempt.
type boxKey struct{ task, attempt string }

// stepTail is how many of the last events `ps` reads to find the step: a box that has run
// for a day has printed hundreds of megabytes.
const stepTail = 200

// lastEvents finds a box's current step, and its ending if it has ended, in its last events.
func lastEvents(ctx context.Context, e runtime.Runtime, id string) (step string, ended workorder.Status) {
	lines := text.WholeLines(1<<20, func(line []byte) {
		e, err := workorder.DecodeEvent(line)
		kind, _, _ := strings.Cut(string(e.Type), ".")
		switch {
		case err != nil:
		case e.Type == workorder.EventStepStarted:
			step = e.Name
		case kind == "agent", kind == "validate":
			step = kind // its start may be far earlier
		case e.Type == workorder.EventResult && e.Result != nil && slices.Contains(workorder.Statuses(), e.Result.Status):
			ended = e.Result.Status
		}
	})
	_ = e.Logs(ctx, id, runtime.LogOptions{Stdout: lines, Tail: stepTail}) // the list is useful without it
	return step, ended
}

type boxState struct {
	runtime.Box
	step  string
	ended workorder.Status
}

// stateOf is a row of `ps`. It changes nothing: a task that has ended is shown as its
// collection will find it.
func stateOf(st *store.Store, r *store.Record, there *present, engineErr error) taskState {
	s := taskState{
		Kind: "task", TaskID: r.TaskID, Project: r.Project, Task: r.Task, Branch: r.TargetBranch, CreatedAt: r.CreatedAt, Dir: r.Dir,
		Container: r.Box, EndedBy: r.EndedBy, Attempt: r.Number(), ResumeAt: r.ResumeAt,
	}
	var b boxState
	here, away := false, false
	if there != nil {
		b, here = there.boxes[boxKey{r.TaskID, r.AttemptID}]
		away = !here && r.Elsewhere(there.id)
	}
	s.Kept = r.Collected && r.Keep && here
	switch {
	case r.Collected:
		s.Status = string(r.Status)
	case engineErr != nil:
		s.Status = statusUnknown
	case away:
		s.Status, s.Engine = statusUnknown, r.Engine
	case here && b.Live():
		s.Status, s.Step = "running", b.step
	case here && b.ended != "":
		s.Status = string(b.ended)
	case !here && st.Held(r.TaskID):
		s.Status = "starting"
		if _, err := os.Stat(filepath.Join(r.Dir, workorder.EventsFile)); err == nil {
			s.Status = "collecting"
		}
	case here && b.State == "created" && st.Held(r.TaskID):
		s.Status = "starting"
	case st.Stopped(r.TaskID) != "":
		s.Status = string(workorder.StatusInterrupted)
	default:
		s.Status = string(workorder.StatusLost)
		// The task may have been collected between the reads of the record, of the engine and of the lock.
		if now, err := st.Load(r.TaskID); err == nil && now.Collected {
			s.Status, s.EndedBy, s.Attempt, s.ResumeAt = string(now.Status), now.EndedBy, now.Number(), now.ResumeAt
		}
	}
	s.Resumable = workorder.Resumable(workorder.Status(s.Status), s.EndedBy)
	return s
}

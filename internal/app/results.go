package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TaskResult is the result of an attempt with what its record adds.
type TaskResult struct {
	*workorder.Result                     // nil if there is none
	Dir               string              // output directory
	Kept              string              // container that was kept for inspection; "" if none was
	Number            int                 // of the attempt
	Former            []taskstore.Attempt // before this one, oldest first
}

func resultOf(rec *taskstore.Record, res *workorder.Result) TaskResult {
	r := TaskResult{Result: res, Dir: rec.Dir, Number: rec.Number(), Former: rec.PastAttempts}
	if rec.Keep {
		r.Kept = rec.Box
	}
	return r
}

// Summarize completes the result of an attempt that this command has run.
func (t *Tasks) Summarize(res *workorder.Result) (TaskResult, error) {
	st, err := t.Store()
	if err != nil {
		return TaskResult{}, err
	}
	rec, err := st.Load(res.TaskID)
	if err != nil {
		return TaskResult{}, err
	}
	return resultOf(rec, res), nil
}

// Attempt finds an attempt of a task, collected if it has ended; 0 is the last one.
func (t *Tasks) Attempt(ctx context.Context, id string, number int) (*taskstore.Record, error) {
	_, rec, err := t.Find(ctx, id)
	if err == nil {
		rec, err = t.Collect(ctx, rec)
	}
	if err != nil {
		return nil, err
	}
	return attemptOf(rec, number)
}

// RecordedAttempt finds an attempt of a task, which may still run; 0 is the last one.
func (t *Tasks) RecordedAttempt(ctx context.Context, id string, number int) (*taskstore.Record, error) {
	_, rec, err := t.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return attemptOf(rec, number)
}

func attemptOf(rec *taskstore.Record, number int) (*taskstore.Record, error) {
	past, err := rec.At(number)
	return past, exiterr.New(workorder.ExitNotFound, err, "`sandbox-agent result "+rec.TaskID+"` lists the attempts")
}

// ReadResult reads the result of a collected attempt, also as it is stored.
func ReadResult(rec *taskstore.Record) (r TaskResult, stored []byte, err error) {
	stored, err = os.ReadFile(filepath.Join(rec.Dir, workorder.ResultFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil, exiterr.New(workorder.ExitNotFound, fmt.Errorf("the output of %s is no longer in %s", rec.TaskID, rec.Dir),
			"`sandbox-agent rm "+rec.TaskID+"` forgets the task")
	}
	if err != nil {
		return r, nil, fmt.Errorf("read result: %w", err)
	}
	res, err := workorder.DecodeResult(stored)
	return resultOf(rec, res), stored, err
}

// Page returns the address of a task's pull request, or of its report where there is none. report and pr ask for one of them.
func (w Works) Page(ctx context.Context, args []string, report, pr bool) (string, error) {
	rec, err := w.Task(ctx, args)
	if err != nil {
		return "", err
	}
	res, err := outcome.ReadResult(rec)
	if err != nil {
		return "", err
	}
	if res.PR != nil && !report {
		return res.PR.URL, nil
	}
	page := filepath.Join(rec.Dir, workorder.ReportHTML)
	if _, err := os.Stat(page); err == nil && !pr {
		return page, nil
	}
	return "", exiterr.New(workorder.ExitNotFound, fmt.Errorf("task %s has no such page", rec.TaskID), "`sandbox-agent result "+rec.TaskID+
		"` shows what it has; `sandbox-agent pr open "+rec.TaskID+"` opens a pull request")
}

// Rehearsal is the plan of a run, and everything that would refuse it before a sandbox starts.
type Rehearsal struct {
	Project *projects.Project
	// Document is the work order, with what it was detected from.
	Document struct {
		workorder.Order
		*detect.Report
	}
	Plan            string // for a person
	Warnings, Notes []string
	Refusals        []error
}

// Rehearse returns the plan of a request with DryRun. It asks no remote.
func (t *Tasks) Rehearse(ctx context.Context, out TaskOutcome) Rehearsal {
	r := out.Resolved
	h := Rehearsal{Project: r.Project, Plan: job.PlanText(r.Job), Warnings: r.Job.Warnings, Notes: r.Job.Notes}
	h.Document.Order = r.Job.Order
	h.Document.AttemptID = "" // only a started box has one
	if r.Found != nil {
		h.Document.Report = r.Found.Report()
	}
	for _, err := range []error{r.Untrusted, r.MissingSecrets(), refusal(ctx, t, r.Job)} {
		if err != nil {
			h.Refusals = append(h.Refusals, err)
		}
	}
	return h
}

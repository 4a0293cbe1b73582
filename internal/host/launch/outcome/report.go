package outcome

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// LoadReport finds the content of a task's report, and the folder with its files: the last attempt, whose result is res, or the one before
// it that proved the same head of the branch.
func LoadReport(rec *taskstore.Record, res *workorder.Result) (t pullrequest.ReportInput, dir string) {
	t = pullrequest.ReportInput{Order: orderOf(rec), Result: res}
	if !pullrequest.Unchanged(t.Order, res) {
		return t, rec.Dir
	}
	pr := res.PR
	for _, a := range slices.Backward(rec.PastAttempts) {
		past, err := rec.At(a.Number)
		if err != nil {
			continue
		}
		// A missing output or a lost attempt is skipped.
		r, err := ReadResult(past)
		if err != nil {
			continue
		}
		if pr == nil {
			pr = r.PR
		}
		o := orderOf(past)
		if r.HeadSHA == res.HeadSHA && len(r.Commits) > 0 && !pullrequest.Unchanged(o, r) && pullrequest.ProvesHead(o, r) {
			r.PR = pr
			return pullrequest.ReportInput{Order: o, Result: r, Later: res}, past.Dir
		}
	}
	return t, rec.Dir
}

// asked completes a result that the host or an older box made with the request from the stored orders.
func asked(rec *taskstore.Record, t pullrequest.ReportInput) *workorder.Result {
	first, err := TaskText(rec)
	if err != nil {
		return t.Result // the report is shorter
	}
	state := &workorder.State{Task: first}
	add := func(text string) {
		if text != "" && text != first && !slices.Contains(state.Added, text) {
			state.Added = append(state.Added, text)
		}
	}
	for _, a := range rec.Attempts() {
		if past, err := rec.At(a.Number); err == nil {
			if o, err := ReadOrder(past.Dir); err == nil {
				add(o.Task)
			}
		}
	}
	add(t.Order.Task)
	r := *t.Result
	r.TaskText = state.TaskText()
	return &r
}

// orderOf is the order of an attempt, or one made of its record if there is none.
func orderOf(rec *taskstore.Record) *workorder.Order {
	if b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.OrderFile)); err == nil {
		if saved, err := workorder.DecodeOrder(b); err == nil {
			return saved
		}
	}
	return &workorder.Order{TaskID: rec.TaskID, Task: rec.Task, Project: rec.Project, Repo: rec.Repo}
}

// KnownPR gives a result the pull request of its branch if the attempt could not ask for it. It takes it from the attempt that
// proved the branch.
func KnownPR(rec *taskstore.Record, res *workorder.Result) {
	if t, _ := LoadReport(rec, res); res.PR == nil && t.Later != nil && t.Result.PR != nil {
		res.PR = t.Result.PR
		res.NextCommand = NextCommand(rec, res)
	}
}

// WriteReport writes the report for people beside the result: the pull request's body, and the same as a
// page that opens from disk. Without an order it is made of the result alone.
func WriteReport(rec *taskstore.Record, res *workorder.Result) error {
	t, dir := LoadReport(rec, res)
	if t.Result.TaskText == nil {
		t.Result = asked(rec, t)
	}
	// Files that the box left in the folder may be links; the root keeps writes in the folder.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer root.Close()
	d := pullrequest.Data(t)
	d.Files = root.FS()
	if d.Folder, err = filepath.Rel(rec.Dir, dir); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var page bytes.Buffer
	if err := report.HTML(d, &page); err != nil {
		return err
	}
	if err := statedir.WriteFile(filepath.Join(rec.Dir, workorder.ReportHTML), page.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := statedir.WriteFile(filepath.Join(rec.Dir, workorder.ReportMarkdown), []byte(report.Markdown(d)), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

package outcome

import (
	"bytes"
	"cmp"
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

// LoadReport returns the content of a task's report, and the directory with its files: those of the last attempt, whose result is
// res, or of an earlier one that proved the same head of the branch.
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
		r, err := ReadResult(past)
		if err != nil {
			continue
		}
		pr = cmp.Or(pr, r.PR)
		o := orderOf(past)
		if r.HeadSHA == res.HeadSHA && len(r.Commits) > 0 && !pullrequest.Unchanged(o, r) && pullrequest.ProvesHead(o, r) {
			r.PR = pr
			return pullrequest.ReportInput{Order: o, Result: r, Later: res}, past.Dir
		}
	}
	return t, rec.Dir
}

// asked adds the task's text from the stored orders to a result without it.
func asked(rec *taskstore.Record, t pullrequest.ReportInput) *workorder.Result {
	first, err := TaskText(rec)
	if err != nil {
		return t.Result // without the text
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

// orderOf returns the order of an attempt, or one made from its record.
func orderOf(rec *taskstore.Record) *workorder.Order {
	if b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.OrderFile)); err == nil {
		if saved, err := workorder.DecodeOrder(b); err == nil {
			return saved
		}
	}
	return &workorder.Order{TaskID: rec.TaskID, Task: rec.Task, Project: rec.Project, Repo: rec.Repo}
}

// KnownPR sets the pull request of a result from the attempt that proved the same head of the branch, if the result has none.
func KnownPR(rec *taskstore.Record, res *workorder.Result) {
	if t, _ := LoadReport(rec, res); res.PR == nil && t.Later != nil && t.Result.PR != nil {
		res.PR = t.Result.PR
		res.NextCommand = NextCommand(rec, res)
	}
}

// WriteReport writes the report beside the result: the pull request's body, and the same as an HTML page. Without an order it
// uses only the result.
func WriteReport(rec *taskstore.Record, res *workorder.Result) error {
	t, dir := LoadReport(rec, res)
	if t.Result.TaskText == nil {
		t.Result = asked(rec, t)
	}
	// Files of the box may be links: the root prevents access outside of the directory.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer root.Close()
	d := pullrequest.Data(t)
	d.Files = root.FS()
	if d.ResultDir, err = filepath.Rel(rec.Dir, dir); err != nil {
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

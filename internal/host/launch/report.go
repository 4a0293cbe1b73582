package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// writeReport puts the report for people beside the result: the pull request's body, and the
// same as a page that opens from disk. The result is what counts: without an order it is made of that alone.
func writeReport(rec *store.Record, res *workorder.Result) error {
	o := &workorder.Order{TaskID: rec.TaskID, Task: rec.Task, Project: rec.Project, Repo: rec.Repo}
	if b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.OrderFile)); err == nil {
		if saved, err := workorder.DecodeOrder(b); err == nil {
			o = saved
		}
	}
	// What the box left in the folder may be links: none leads out of it.
	root, err := os.OpenRoot(rec.Dir)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer root.Close()
	d := pullrequest.Data(o, res)
	d.Files = root.FS()
	var page bytes.Buffer
	if err := report.HTML(d, &page); err != nil {
		return err
	}
	if err := store.WriteFile(filepath.Join(rec.Dir, workorder.ReportHTML), page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := store.WriteFile(filepath.Join(rec.Dir, workorder.ReportMarkdown), []byte(report.Markdown(d)), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

package pullrequest

import (
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Body is what a reviewer reads first.
func Body(t ReportInput) string {
	d := Data(t)
	d.Later = nil // below the mark, where another attempt finds it
	body := report.Markdown(d) + "\n" + bodyMark(t.Order, t.Result) + "\n"
	if t.Later != nil {
		body += "\n" + report.LaterLine(t.Later)
	}
	return body
}

// Data returns a report's data about an attempt, without files: the caller that has the result's directory adds them.
func Data(t ReportInput) report.Data {
	o, r := t.Order, t.Result
	task, added := asked(o, r)
	d := report.Data{
		Result: r, Later: t.Later,
		Order: report.Order{
			Task: task, Added: added, Project: o.Project, Harness: o.Harness.Name, Model: o.Harness.Model,
			Network: o.Network.Mode, Allow: o.Network.Allow, TimeoutMinutes: o.TimeoutMinutes,
		},
		Next:     next(o, r),
		Versions: []report.Version{{Name: "sandbox-agent", Version: version.String()}},
	}
	if o.MaxBudgetUSD != nil {
		d.Order.BudgetUSD = *o.MaxBudgetUSD
	}
	for _, e := range r.Evidence {
		d.Evidence = append(d.Evidence, report.EvidenceLink{Name: e.Name, Kind: e.Kind, Path: e.Path})
	}
	addLinks(&d, o, r)
	return d
}

// asked is what the task is. An order has only what this attempt was started with: an addition, or nothing.
func asked(o *workorder.Order, r *workorder.Result) (task string, added []string) {
	if r.TaskText != nil {
		return r.TaskText.Task, r.TaskText.Added
	}
	return o.Task, nil
}

func next(o *workorder.Order, r *workorder.Result) []report.NextStep {
	var steps []report.NextStep
	if o.Repo != "" {
		pr := 0
		if r.PR != nil {
			pr = r.PR.Number
		}
		steps = report.RevisePR(pr, o.TaskID, r.Status)
	}
	if r.Pushed && r.Branch != "" {
		steps = append(steps, report.TakeOver(o.Repo, r.Branch))
	}
	return steps
}

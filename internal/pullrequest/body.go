package pullrequest

import (
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Body is what a reviewer reads first.
func Body(o *workorder.Order, r *workorder.Result) string { return report.Markdown(Data(o, r)) }

// Data is what is known of a run, for a report of it. Files are not in it: whoever has
// the result's folder adds them.
func Data(o *workorder.Order, r *workorder.Result) report.Data {
	d := report.Data{
		Result: r,
		Order: report.Order{
			Task: o.Task, Project: o.Project, Harness: o.Harness.Name, Model: o.Harness.Model,
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
		steps = append(steps, report.TakeOver(r.Branch))
	}
	return steps
}

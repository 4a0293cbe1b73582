package pullrequest

import (
	"github.com/sandbox-agent/sandbox-agent/internal/forge/setup"
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// addLinks gives a report the pages of the forge, where they are known.
func addLinks(d *report.Data, o *workorder.Order, r *workorder.Result) {
	pages := setup.PagesOf(config(o, nil))
	if pages == nil {
		return
	}
	d.CommitURL, d.FileURL = pages.Commit, pages.File
	d.EvidenceURL = func(path string) string {
		if !r.EvidenceKept(path) {
			return ""
		}
		return pages.Raw(r.EvidenceSHA, path)
	}
}

// commitURL returns the address of a commit's page; nil if it is not known.
func commitURL(o *workorder.Order) func(sha string) string {
	if pages := setup.PagesOf(config(o, nil)); pages != nil {
		return pages.Commit
	}
	return nil
}

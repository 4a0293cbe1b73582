// Package outcome stores an attempt's events and result, validates a box's result, and makes one for a lost attempt.
package outcome

import (
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/netrules"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Sanitize removes from a box's result what a box cannot know: an agent that escaped from its user may have written it. Names
// that scripts use come from the order; unknown words are errors of the box.
func Sanitize(res *workorder.Result, rec *taskstore.Record) {
	if s := res.Status; !slices.Contains(workorder.Statuses(), s) || s == workorder.StatusLost {
		res.Status, res.EndedBy = workorder.StatusError, workorder.EndedByBox
		res.Reasons = append(workorder.Because(workorder.ReasonBadResult, "the sandbox gave a result with the status %q", s), res.Reasons...)
	}
	if !slices.Contains(workorder.Endings(), res.EndedBy) {
		res.EndedBy = workorder.EndedByBox
	}
	for i := range res.Reasons {
		if c := &res.Reasons[i].Code; !slices.Contains(workorder.ReasonCodes(), *c) {
			*c = ""
		}
	}
	// The box counts attempts that began, the host those that it started.
	if res.AttemptID = rec.AttemptID; res.Attempt <= 0 || res.Attempt > maxAttempt {
		res.Attempt = rec.Number()
	}
	res.TaskID, res.Project, res.Mode, res.Resumable = rec.TaskID, rec.Project, rec.Mode, rec.Mode.Resumable(res.Status, res.EndedBy)
	// The box knows a local repository only by its URL during the run.
	res.Repo = rec.Repo
	if rec.Branch != "" || !workorder.ValidRefName(res.BaseBranch) {
		res.BaseBranch = rec.Branch
	}
	if res.Branch != "" && res.Branch != rec.TargetBranch {
		res.Warnings = append(res.Warnings, fmt.Sprintf("the sandbox reported a branch that is not this task's: %q", res.Branch))
		res.Branch = ""
	}
	res.Pushed = res.Pushed && res.Branch != ""
	for _, sha := range []*string{&res.BaseSHA, &res.HeadSHA} {
		if !git.ValidSHA(*sha) {
			*sha = ""
		}
	}
	pullRequest(res)
	proposals(res)
	continuing(res)
	localPaths(res)
	res.NextCommand = NextCommand(rec, res)
}

// pullRequest drops a pull request's URL unless it is a web page: `open` passes it to the user's desktop, which has handlers
// for many other schemes.
func pullRequest(res *workorder.Result) {
	if res.PR == nil {
		return
	}
	pr := *res.PR
	if u, err := url.Parse(pr.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		pr.URL = ""
	}
	res.PR = &pr
}

// proposals drops rules that do not match their host: users copy them into their project file.
func proposals(res *workorder.Result) {
	if res.Network == nil {
		return
	}
	for i := range res.Network.Hosts {
		h := &res.Network.Hosts[i]
		if h.Rule == "" {
			continue
		}
		r, err := workorder.ParseAllowRule(netrules.Bare(h.Rule))
		if err != nil || r.Sub || r.Host != workorder.CanonicalHost(h.Host) {
			h.Rule = ""
		}
	}
}

// maxAttempt bounds the attempt number from a box: one attempt a minute for a year.
const maxAttempt = 366 * 24 * 60

// continuing validates the fields for a next attempt.
func continuing(res *workorder.Result) {
	if res.ResumeAt != nil && (res.Status != workorder.StatusParked || time.Until(*res.ResumeAt) > workorder.MaxPark) {
		res.ResumeAt = nil
	}
	if c := res.Checkpoint; c != nil && (!git.ValidSHA(c.SHA) || c.Tree != "" && !git.ValidSHA(c.Tree)) {
		res.Checkpoint = nil
	}
	if r := res.Restored; r != nil {
		c := *r
		for _, sha := range []*string{&c.Head, &c.Checkpoint, &c.Tree} {
			if !git.ValidSHA(*sha) {
				*sha = ""
			}
		}
		if !strings.HasPrefix(c.Kept, workorder.TaskRefs(res.TaskID)) || !workorder.ValidRefName(c.Kept) {
			c.Kept = ""
		}
		c.Verified = c.Verified && c.Tree != ""
		res.Restored = &c
	}
}

// OtherAttempt reports whether the result belongs to another attempt.
func OtherAttempt(res *workorder.Result, rec *taskstore.Record) bool {
	return res.AttemptID != "" && rec.AttemptID != "" && res.AttemptID != rec.AttemptID
}

// SanitizeEvents returns a function that shows events of the box, with a sanitized result.
func SanitizeEvents(rec *taskstore.Record, show func(workorder.Event)) func(workorder.Event) {
	return func(e workorder.Event) {
		if e.Type == workorder.EventResult && e.Result != nil && e.Seq > 0 {
			res := *e.Result
			Sanitize(&res, rec)
			e.Result, e.Status = &res, string(res.Status)
		}
		show(e)
	}
}

// localPaths drops paths that lead out of the result's directory.
func localPaths(res *workorder.Result) {
	inside := func(p string) bool { return p == "" || fs.ValidPath(p) }
	for i := range res.Validation {
		if v := &res.Validation[i]; !inside(v.Log) {
			v.Log = ""
		}
	}
	localProof(res.Proof, inside)
	for i := range res.Services {
		if s := &res.Services[i]; !inside(s.Log) {
			s.Log = ""
		}
	}
	res.Evidence = slices.DeleteFunc(res.Evidence, func(e workorder.Evidence) bool { return !inside(e.Path) })
}

func localProof(p *workorder.Proof, inside func(string) bool) {
	if p == nil {
		return
	}
	for _, c := range p.Checks {
		for _, run := range []*workorder.CheckRun{c.Base, c.Head} {
			if run != nil && !inside(run.Log) {
				run.Log = ""
			}
		}
	}
	for i := range p.Pages {
		if page := &p.Pages[i]; !inside(page.Diff) {
			page.Diff = ""
		}
		for _, v := range []*workorder.PageView{p.Pages[i].Base, p.Pages[i].Head} {
			if v != nil && !inside(v.Picture) {
				v.Picture = ""
			}
		}
	}
}

// NextCommand returns the next command for the user. One from the box is never shown.
func NextCommand(rec *taskstore.Record, res *workorder.Result) string {
	return pullrequest.NextCommand(pullrequest.Task{ID: rec.TaskID, Mode: rec.Mode, Repo: rec.Repo}, res)
}

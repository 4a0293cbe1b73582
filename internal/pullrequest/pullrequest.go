// Package pullrequest opens the pull request of a task's branch, from what the order asks for and the result
// says. The box calls it after the landing, the host when that could not be done then. It may be called again:
// the branch has one pull request.
package pullrequest

import (
	"context"
	"log/slog"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/setup"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// SkipReason says why there is nothing to open, empty when there is: no branch on the remote, or no commit on it.
func SkipReason(o *workorder.Order, r *workorder.Result) string {
	switch {
	case o.Repo == "":
		return "the task has no repository"
	case len(r.Commits) == 0:
		return "the branch has no commits"
	case !r.Pushed || r.Branch == "":
		return "the branch is not on the remote"
	}
	return ""
}

// Client is a client of the forge that the order's repository lies on.
func Client(o *workorder.Order, token string, log *slog.Logger) (forge.Forge, error) {
	conf := config(o, log)
	conf.Token = token
	return setup.New(conf)
}

// AppClient is Client for an App, whose tokens it makes and renews.
func AppClient(o *workorder.Order, app *workorder.ForgeApp, log *slog.Logger) (forge.Forge, error) {
	conf := config(o, log)
	conf.App = app
	return setup.New(conf)
}

// RemoteClient is AppClient for git's own tokens: they are asked for at the remote's host, whatever API the project names.
func RemoteClient(o *workorder.Order, app *workorder.ForgeApp, log *slog.Logger) (forge.Forge, error) {
	if o.PR != nil && o.PR.APIURL != "" && !setup.SameHost(o.Repo, o.PR.APIURL) {
		own := *o
		own.PR = nil
		o = &own
	}
	return AppClient(o, app, log)
}

func config(o *workorder.Order, log *slog.Logger) forge.Config {
	conf := forge.Config{Remote: o.Repo, Log: log}
	if o.PR != nil {
		conf.Repository, conf.APIURL = o.PR.Repository, o.PR.APIURL
	}
	return conf
}

// Open opens the pull request of r's branch or updates it. The body tells of t; where t knows of no attempt that proved what r left as it
// was, the body of one that is open stays. It is written once more where the first one could not name the pull request: it
// had no number then. warnings are what did not keep it from being opened.
func Open(ctx context.Context, c forge.Forge, o *workorder.Order, r *workorder.Result, t ReportInput) (pr *workorder.PR, warnings []string,
	err error,
) {
	spec := spec(o, r)
	if t.Later == nil && Unchanged(o, r) {
		spec.Keep = keeps(o, r)
	}
	spec.Body = Body(t)
	pr, warnings, err = open(ctx, c, spec)
	known := t.Result.PR
	if err != nil || pr == nil || spec.Keep != nil || known != nil && known.Number == pr.Number || pr.State == forge.StateClosed ||
		pr.State == forge.StateMerged {
		return pr, warnings, err
	}
	named := *t.Result
	named.PR, t.Result = pr, &named
	spec.Body = Body(t)
	if _, _, err := open(ctx, c, spec); err != nil {
		warnings = append(warnings, "the pull request's body does not say how to revise it: "+err.Error())
	}
	return pr, warnings, nil
}

// Update is Open for an attempt that left the branch as it was: where there is no pull request none is opened, since the one that proved
// the branch has more to say. pr is nil then.
func Update(ctx context.Context, c forge.Forge, o *workorder.Order, r *workorder.Result) (pr *workorder.PR, warnings []string, err error) {
	spec := spec(o, r)
	spec.Keep, spec.NoNew = keeps(o, r), true
	return open(ctx, c, spec)
}

func spec(o *workorder.Order, r *workorder.Result) forge.PRSpec {
	spec := forge.PRSpec{Head: r.Branch, Base: r.BaseBranch, Title: Title(o, r), Draft: o.PR.Draft, Labels: o.PR.Labels}
	if o.PR.Base != "" {
		spec.Base = o.PR.Base
	}
	for _, name := range o.PR.Reviewers {
		if _, team, ok := strings.Cut(name, "/"); ok {
			spec.TeamReviewers = append(spec.TeamReviewers, team)
		} else {
			spec.Reviewers = append(spec.Reviewers, name)
		}
	}
	return spec
}

func open(ctx context.Context, c forge.Forge, spec forge.PRSpec) (*workorder.PR, []string, error) {
	got, err := c.OpenPR(ctx, spec)
	if got.Number == 0 {
		return nil, got.Warnings, err
	}
	pr := &workorder.PR{Number: got.Number, URL: got.URL, State: got.State}
	if got.Draft && got.State == forge.StateOpen {
		pr.State = "draft"
	}
	return pr, got.Warnings, err
}

// maxTitle is what a list of pull requests shows in one line.
const maxTitle = 100

// Title is the first line of the task, else the newest commit's subject. Package forge parts mentions and references in it.
func Title(o *workorder.Order, r *workorder.Result) string {
	task, _ := asked(o, r)
	clean := forge.StripPlain(task)
	title := ""
	for line := range strings.Lines(clean) {
		if title = text.Words(strings.Trim(line, "# \t\r\n")); title != "" {
			break
		}
	}
	if title == "" && len(r.Commits) > 0 {
		title = text.Words(forge.StripPlain(r.Commits[0].Subject))
	}
	return text.Runes(title, maxTitle)
}

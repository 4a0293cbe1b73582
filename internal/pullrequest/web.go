package pullrequest

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge/github"
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// addLinks gives a report the pages of the forge, where they are known.
func addLinks(d *report.Data, o *workorder.Order, r *workorder.Result) {
	web := webPage(o)
	if web == "" {
		return
	}
	d.CommitURL = commitURL(o)
	d.FileURL = func(sha, path string, line int) string {
		u := web + "/blob/" + sha + "/" + (&url.URL{Path: path}).EscapedPath()
		if line > 0 {
			u += "#L" + strconv.Itoa(line)
		}
		return u
	}
	d.EvidenceURL = func(path string) string {
		if !r.EvidenceKept(path) {
			return ""
		}
		// Not raw.githubusercontent.com: that one has no view of private repositories.
		return web + "/blob/" + r.EvidenceSHA + "/" + (&url.URL{Path: path}).EscapedPath() + "?raw=true"
	}
}

// webPage is the repository's page on the forge; empty means it is not known.
func webPage(o *workorder.Order) string {
	if o.PR != nil && o.PR.APIURL != "" {
		return pageOfAPI(o)
	}
	repo, ok := github.Parse(o.Repo)
	if !ok || repo.Assumed {
		return ""
	}
	return "https://" + strings.ToLower(repo.Host) + "/" + repo.Owner + "/" + repo.Name
}

// pageOfAPI is the page beside the API that the project names: an enterprise server has it at /api/v3 of the same host.
func pageOfAPI(o *workorder.Order) string {
	u, err := url.Parse(o.PR.APIURL)
	if err != nil || u.Host == "" {
		return ""
	}
	name := o.PR.Repository
	if repo, ok := github.Parse(o.Repo); name == "" && ok {
		name = repo.String()
	}
	if name == "" {
		return ""
	}
	host, dotcom := strings.CutPrefix(strings.ToLower(u.Host), "api.")
	if !dotcom && !strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/api/v3") {
		return ""
	}
	return u.Scheme + "://" + host + "/" + name
}

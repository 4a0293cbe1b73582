package github

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

type site string

// PagesOf returns the pages of a repository; nil if they are unknown. An enterprise server has its API at /api/v3 of
// the same host.
func PagesOf(conf forge.Config) forge.Pages {
	repo, ok := Parse(conf.Remote)
	if conf.APIURL == "" {
		if !ok || repo.Assumed {
			return nil
		}
		return site("https://" + strings.ToLower(repo.Host) + "/" + repo.String())
	}
	u, err := url.Parse(conf.APIURL)
	name := conf.Repository
	if name == "" && ok {
		name = repo.String()
	}
	if err != nil || u.Host == "" || name == "" {
		return nil
	}
	host, dotcom := strings.CutPrefix(strings.ToLower(u.Host), "api.")
	if !dotcom && !strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/api/v3") {
		return nil
	}
	return site(u.Scheme + "://" + host + "/" + name)
}

func (s site) Commit(sha string) string { return string(s) + "/commit/" + sha }

func (s site) File(sha, path string, line int) string {
	u := string(s) + "/blob/" + sha + "/" + (&url.URL{Path: path}).EscapedPath()
	if line > 0 {
		u += "#L" + strconv.Itoa(line)
	}
	return u
}

// Raw avoids raw.githubusercontent.com, which does not show private repositories.
func (s site) Raw(sha, path string) string { return s.File(sha, path, 0) + "?raw=true" }

package github

import (
	"net"
	"net/url"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// Repo is a repository on a GitHub.
type Repo struct {
	forge.Repo
	// API and GraphQL are the URLs of requests; API ends in a slash.
	API     string
	GraphQL string
}

// maxRemote bounds a remote's length; the longest name on GitHub has 39 + 100 characters.
const maxRemote = 2048

var (
	// GitHub's rules for accounts, a little wider: enterprise accounts may have an underscore.
	ownerRule = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
	nameRule  = lazyregexp.New(`^[A-Za-z0-9._-]{1,100}$`)
	hostRule  = lazyregexp.New(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	// scp is git's short form of an SSH remote, [user@]host:path.
	scp = lazyregexp.New(`^(?:[A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+):([^:]*)$`)
)

// others are forges that are not GitHub: they never get a request.
var others = []string{
	"gitlab.com", "bitbucket.org", "codeberg.org", "gitea.com", "dev.azure.com", "visualstudio.com", "sr.ht",
	"git.sr.ht", "sourceforge.net", "gitee.com",
}

// Parse splits a clone URL: https, http, ssh and git's short form, ignoring user and password. It is false for paths,
// other schemes, other known forges, and paths that are not owner/name.
func Parse(remote string) (Repo, bool) {
	if len(remote) > maxRemote || strings.ContainsFunc(remote, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return Repo{}, false
	}
	scheme, host, path := "https", "", ""
	if strings.Contains(remote, "://") {
		u, err := url.Parse(remote)
		if err != nil || u.RawQuery != "" || u.Fragment != "" {
			return Repo{}, false
		}
		switch strings.ToLower(u.Scheme) {
		case "https", "http":
			scheme, host = strings.ToLower(u.Scheme), u.Host
		case "ssh", "git+ssh", "ssh+git":
			host = u.Hostname() // its port is that of SSH
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
		default:
			return Repo{}, false
		}
		path = u.EscapedPath()
	} else {
		m := scp.FindStringSubmatch(remote)
		if m == nil || len(m[1]) == 1 { // C:/path is none of a host
			return Repo{}, false
		}
		host, path = m[1], m[2]
	}
	r := Repo{Repo: forge.Repo{Host: strings.ToLower(host)}}
	var ok bool
	if r.Owner, r.Name, ok = ownerAndName(path); !ok {
		return Repo{}, false
	}
	return r, r.locate(scheme)
}

// ownerAndName splits a remote's path, "/owner/name.git" and its variants.
func ownerAndName(path string) (owner, name string, ok bool) {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	owner, name, ok = strings.Cut(path, "/")
	name = strings.TrimSuffix(name, ".git")
	return owner, name, ok && ownerRule.MatchString(owner) && nameRule.MatchString(name) && strings.Trim(name, ".") != ""
}

func (r *Repo) locate(scheme string) bool {
	name, port := r.Host, ""
	if h, p, err := net.SplitHostPort(r.Host); err == nil {
		name, port = h, p
	}
	if strings.Trim(port, "0123456789") != "" || strings.HasSuffix(r.Host, ":") {
		return false
	}
	if ip := net.ParseIP(strings.Trim(name, "[]")); ip == nil && (!hostRule.MatchString(name) || strings.Contains(name, "..")) {
		return false
	}
	switch {
	// ssh.github.com takes SSH at port 443, www. is redirected.
	case name == "github.com", name == "ssh.github.com", name == "www.github.com":
		r.Host, r.API, r.GraphQL = "github.com", "https://api.github.com/", "https://api.github.com/graphql"
	case strings.HasSuffix(name, ".ghe.com"):
		r.Host, r.API, r.GraphQL = name, "https://api."+name+"/", "https://api."+name+"/graphql"
	default:
		for _, o := range others {
			if name == o || strings.HasSuffix(name, "."+o) {
				return false
			}
		}
		base := scheme + "://" + r.Host
		r.API, r.GraphQL, r.Assumed = base+"/api/v3/", base+"/api/graphql", true
	}
	return true
}

// SameHost reports whether an API belongs to the host of a remote, at any port. github.com's API has another name.
func SameHost(remote, api string) bool {
	u, err := url.Parse(strings.TrimSpace(api))
	if err != nil {
		return false
	}
	host := remoteHost(remote)
	return host != "" && host == Home(u.Hostname())
}

// Home returns the forge's host for an API's host.
func Home(host string) string {
	host = strings.ToLower(host)
	if home, ok := strings.CutPrefix(host, "api."); ok && (home == "github.com" || strings.HasSuffix(home, ".ghe.com")) {
		return home
	}
	return host
}

// remoteHost returns the host of a remote without its port; "" if there is none.
func remoteHost(remote string) string {
	if r, ok := Parse(remote); ok {
		return (&url.URL{Host: r.Host}).Hostname()
	}
	if u, err := url.Parse(remote); err == nil && u.Host != "" {
		return strings.ToLower(u.Hostname())
	}
	if m := scp.FindStringSubmatch(remote); m != nil {
		return strings.ToLower(m[1])
	}
	return ""
}

// at moves the repository to an API that the user named, whose host is not asked for its type.
func (r *Repo) at(base string) bool {
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return false
	}
	path := strings.TrimSuffix(u.Path, "/")
	if path == "" && !strings.HasPrefix(strings.ToLower(u.Host), "api.") {
		path = "/api/v3" // the address of an enterprise server
	}
	root := u.Scheme + "://" + u.Host
	r.API, r.GraphQL, r.Assumed = root+path+"/", root+path+"/graphql", false
	if before, ok := strings.CutSuffix(path, "/api/v3"); ok {
		r.GraphQL = root + before + "/api/graphql"
	}
	return true
}

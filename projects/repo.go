package projects

import (
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// Transport is how a repository is reached.
type Transport string

// The transports.
const (
	TransportNone  Transport = ""      // there is no repository
	TransportHTTP  Transport = "http"  // http or https
	TransportSSH   Transport = "ssh"   // ssh:// or user@host:path
	TransportLocal Transport = "local" // a folder of the host
)

// fault is what is wrong with a value, before it has a place.
type fault struct{ code, message, hint string }

var (
	// scpForm is user@host:path. A slash before the colon makes it a path.
	scpForm     = regexp.MustCompile(`^(?:([^@\s/]+)@)?([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):([^\s].*)$`)
	helperForm  = regexp.MustCompile(`^[A-Za-z0-9+.-]+::`)
	schemeForm  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	forgetful   = regexp.MustCompile(`^(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org|codeberg\.org)/`)
	driveLetter = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
)

const credentialHint = "remove everything before the @; the token is taken from SANDBOX_AGENT_GIT_TOKEN, GH_TOKEN, `gh auth token` or git's credential helper"

// RepoTransport says how a repository is reached, or what is wrong with it.
// It never repeats a URL that may hold a credential.
func RepoTransport(repo string) (Transport, error) {
	t, f := repoTransport(repo)
	if f != nil {
		return TransportNone, &OptionError{Name: "repo", Message: f.message, Hint: f.hint}
	}
	return t, nil
}

func repoTransport(repo string) (Transport, *fault) {
	bad := func(message, hint string) (Transport, *fault) {
		return TransportNone, &fault{codeValue, message, hint}
	}
	switch {
	case repo == "":
		return TransportNone, nil
	case strings.HasPrefix(repo, "-"):
		return bad("repo starts with a dash, which git would read as an option", "write ./ before the name of a folder")
	case strings.ContainsFunc(repo, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return bad("repo holds a control character", "")
	case helperForm.MatchString(repo):
		return bad("repo names a git remote helper, which can run any program", "use an https or ssh URL or a folder")
	case schemeForm.MatchString(repo):
		return urlTransport(repo)
	case forgetful.MatchString(repo):
		return bad("repo looks like a URL without its beginning", "write https:// before it")
	case driveLetter.MatchString(repo):
		return TransportLocal, nil
	}
	if m := scpForm.FindStringSubmatch(repo); m != nil {
		switch user, path := m[1], m[3]; {
		case strings.Contains(user, ":"):
			return TransportNone, &fault{codeCredential, "repo holds a password", "remove it and use an SSH key"}
		case strings.HasPrefix(user, "-"), strings.HasPrefix(path, "-"):
			return bad("repo holds a part that git would read as an option", "")
		}
		return TransportSSH, nil
	}
	return TransportLocal, nil
}

func urlTransport(repo string) (Transport, *fault) {
	u, err := url.Parse(repo)
	if err != nil || strings.ContainsAny(repo, " \t\\") {
		// The parser's message repeats the URL, so it is not used.
		return TransportNone, &fault{codeValue, "repo is not a valid URL", "compare it with https://github.com/owner/name"}
	}
	if strings.ContainsFunc(u.Host+u.Path+u.User.Username(), unicode.IsControl) {
		return TransportNone, &fault{codeValue, "repo holds a control character behind a percent sign", "remove it: it would end a line of what git's credential helper is asked"}
	}
	scheme := strings.ToLower(u.Scheme)
	_, password := u.User.Password()
	switch scheme {
	case "http", "https":
		if u.User != nil {
			return TransportNone, &fault{codeCredential, "repo holds a user name or credential", credentialHint}
		}
	case "ssh", "git+ssh", "ssh+git":
		if password {
			return TransportNone, &fault{codeCredential, "repo holds a password", "remove it and use an SSH key"}
		}
		if strings.HasPrefix(u.User.Username(), "-") {
			return TransportNone, &fault{codeValue, "repo holds a part that ssh would read as an option", ""}
		}
	case "file":
		if u.Host != "" && u.Host != "localhost" || u.Path == "" {
			return TransportNone, &fault{codeValue, "repo is not a file URL with a path", "write file:///path or the path alone"}
		}
		return TransportLocal, nil
	default:
		return TransportNone, &fault{codeUnsupported, "repo has the unknown scheme " + scheme + "://", "use https://, ssh:// or a folder"}
	}
	if h := u.Hostname(); h == "" || strings.HasPrefix(h, "-") || strings.Trim(u.Path, "/") == "" {
		return TransportNone, &fault{codeValue, "repo is a URL without host or path", "compare it with https://github.com/owner/name"}
	}
	if scheme == "http" || scheme == "https" {
		return TransportHTTP, nil
	}
	return TransportSSH, nil
}

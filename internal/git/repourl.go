package git

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Transport is how a repository is reached.
type Transport string

// Transports of repositories.
const (
	TransportNone  Transport = ""      // there is no repository
	TransportHTTP  Transport = "http"  // http or https
	TransportSSH   Transport = "ssh"   // ssh:// or user@host:path
	TransportLocal Transport = "local" // a directory of the host
)

// Codes of a RepoURLError; projects reports them as they are.
const (
	codeValue       = "bad-value"
	codeUnsupported = "not-supported"
	codeCredential  = "credential-in-url"
)

// RepoURLError is an invalid or unsafe repository address. It never repeats the address, which may contain a credential.
type RepoURLError struct{ Code, Message, Hint string }

func (e *RepoURLError) Error() string { return e.Message }

// DefaultAuthor returns the author of commits if the caller gives none.
func DefaultAuthor() workorder.Identity {
	return workorder.Identity{Name: "sandbox-agent", Email: "sandbox-agent@localhost"}
}

var (
	// scpForm is user@host:path. A slash before the colon makes it a path.
	scpForm     = lazyregexp.New(`^(?:([^@\s/]+)@)?([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):([^\s].*)$`)
	helperForm  = lazyregexp.New(`^[A-Za-z0-9+.-]+::`)
	schemeForm  = lazyregexp.New(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	forgetful   = lazyregexp.New(`^(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org|codeberg\.org)/`)
	driveLetter = lazyregexp.New(`^[A-Za-z]:[\\/]`)
)

const credentialHint = "remove everything before the @; the token is taken from SANDBOX_AGENT_GIT_TOKEN, GH_TOKEN, `gh auth " +
	"token` or git's credential helper"

// RepoTransport returns the transport of a repository, or a *RepoURLError.
func RepoTransport(repo string) (Transport, error) {
	bad := func(message, hint string) (Transport, error) {
		return TransportNone, &RepoURLError{codeValue, message, hint}
	}
	switch {
	case repo == "":
		return TransportNone, nil
	case strings.HasPrefix(repo, "-"):
		return bad("repo starts with a dash, which git would read as an option", "write ./ before the name of a directory")
	case strings.ContainsFunc(repo, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return bad("repo holds a control character", "")
	case helperForm.MatchString(repo):
		return bad("repo names a git remote helper, which can run any program", "use an https or ssh URL or a directory")
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
			return TransportNone, &RepoURLError{codeCredential, "repo holds a password", "remove it and use an SSH key"}
		case strings.HasPrefix(user, "-"), strings.HasPrefix(path, "-"):
			return bad("repo holds a part that git would read as an option", "")
		}
		return TransportSSH, nil
	}
	return TransportLocal, nil
}

func urlTransport(repo string) (Transport, error) {
	u, err := url.Parse(repo)
	if err != nil || strings.ContainsAny(repo, " \t\\") {
		// The parser's message repeats the URL, so it is not used.
		return TransportNone, &RepoURLError{codeValue, "repo is not a valid URL", "compare it with https://github.com/owner/name"}
	}
	if strings.ContainsFunc(u.Host+u.Path+u.User.Username(), unicode.IsControl) {
		return TransportNone, &RepoURLError{
			codeValue, "repo holds a control character behind a percent sign",
			"remove it: it would end a line of the credential helper's input",
		}
	}
	scheme := strings.ToLower(u.Scheme)
	_, password := u.User.Password()
	switch scheme {
	case "http", "https":
		if u.User != nil {
			return TransportNone, &RepoURLError{codeCredential, "repo holds a user name or credential", credentialHint}
		}
	case "ssh", "git+ssh", "ssh+git":
		if password {
			return TransportNone, &RepoURLError{codeCredential, "repo holds a password", "remove it and use an SSH key"}
		}
		if strings.HasPrefix(u.User.Username(), "-") {
			return TransportNone, &RepoURLError{codeValue, "repo holds a part that ssh would read as an option", ""}
		}
	case "file":
		if u.Host != "" && u.Host != "localhost" || u.Path == "" {
			return TransportNone, &RepoURLError{codeValue, "repo is not a file URL with a path", "write file:///path or the path alone"}
		}
		return TransportLocal, nil
	default:
		return TransportNone, &RepoURLError{
			codeUnsupported, "repo has the unknown scheme " + scheme + "://",
			"use https://, ssh:// or a directory",
		}
	}
	if h := u.Hostname(); h == "" || strings.HasPrefix(h, "-") || strings.Trim(u.Path, "/") == "" {
		return TransportNone, &RepoURLError{codeValue, "repo is a URL without host or path", "compare it with https://github.com/owner/name"}
	}
	if scheme == "http" || scheme == "https" {
		return TransportHTTP, nil
	}
	return TransportSSH, nil
}

// AbsRepo makes a repository's path absolute from the working directory, and returns URLs unchanged.
func AbsRepo(repo string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	home, _ := os.UserHomeDir() // without one, ~ means nothing
	return AbsRepoFrom(repo, dir, home), nil
}

// AbsRepoFrom is AbsRepo for another directory and home.
func AbsRepoFrom(repo, dir, home string) string {
	if t, err := RepoTransport(repo); err != nil || t != TransportLocal {
		return repo
	}
	return AbsPath(strings.TrimPrefix(strings.TrimPrefix(repo, "file://localhost"), "file://"), dir, home)
}

// AbsPath makes a path, which may begin with ~/, absolute from dir.
func AbsPath(p, dir, home string) string {
	if p == "~" || strings.HasPrefix(p, "~/") {
		p = filepath.Join(home, strings.TrimPrefix(p, "~"))
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(dir, p)
	}
	return filepath.Clean(p)
}

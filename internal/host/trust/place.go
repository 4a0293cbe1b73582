package trust

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Top is the work tree or bare repository that contains a path; empty if there is none. It is found without git, as an
// untrusted repository must not influence the answer.
func Top(path string) string { return above(realPath(path)) }

// above is the nearest work tree or bare repository among a path and its parents by name.
func above(path string) string {
	for at := path; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at
		}
		// A bare one, by git's rules: missing parts may be where commondir leads.
		if _, err := os.Lstat(filepath.Join(at, "HEAD")); err == nil {
			for _, name := range []string{"objects", "commondir"} {
				if _, err := os.Lstat(filepath.Join(at, name)); err == nil {
					return at
				}
			}
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// Home is the repository of a project file: the one that its path leads through, if the file really is in it. It is empty if there is
// none, or if a link leads out of it, so that the file is of another one.
func Home(file string) string {
	asks, lies := above(filepath.Dir(fullPath(file))), Top(file)
	if asks == "" || realPath(asks) != lies {
		return ""
	}
	return lies
}

// Around are all repositories of a file: the one that its path leads through, and those that really contain the file and its folder.
func Around(file string) (tops []string) {
	asks := above(filepath.Dir(fullPath(file)))
	if asks != "" {
		asks = realPath(asks)
	}
	for _, top := range []string{asks, Top(filepath.Dir(file)), Top(file)} {
		if top != "" && !slices.Contains(tops, top) {
			tops = append(tops, top)
		}
	}
	return tops
}

// Inside reports whether a path is in a folder, both without links.
func Inside(path, folder string) bool {
	return folder != "" && below(realPath(path), realPath(folder))
}

func below(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// realPath is the path without links, as far as it exists.
func realPath(path string) string {
	path = fullPath(path)
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(realPath(dir), filepath.Base(path))
	}
	return path
}

// fullPath is the absolute path, with its links.
func fullPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// SameRemote reports whether two URLs name the same repository. User, default port and the suffix .git do not count, nor does the
// protocol, unless it is plain HTTP or git://.
func SameRemote(a, b string) bool {
	x, y := remote(a), remote(b)
	return x != "" && x == y
}

func remote(s string) string {
	host, path := "", ""
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && u.Host != "" {
		host, path = u.Host, u.Path
		if u.Scheme == "http" || u.Scheme == "git" {
			host = u.Scheme + "://" + host // plain HTTP: others on the way read the token
		}
		for _, port := range []string{":22", ":80", ":443"} {
			host = strings.TrimSuffix(host, port)
		}
	} else if h, p, scp := strings.Cut(s, ":"); scp && !strings.Contains(h, "/") {
		host, path = h[strings.LastIndexByte(h, '@')+1:], p
	}
	if host == "" {
		return ""
	}
	return strings.ToLower(host) + "/" + strings.TrimSuffix(strings.Trim(path, "/"), ".git")
}

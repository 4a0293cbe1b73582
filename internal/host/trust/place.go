package trust

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Top is the work tree or bare repository that a path lies in, found without git: nothing of a repository that is not trusted
// has a say. Empty: in none.
func Top(path string) string {
	for at := realPath(path); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at
		}
		// Bare, as git has it: what is not there may be where commondir leads.
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

// Inside reports whether a path lies in a folder, as both are without links.
func Inside(path, folder string) bool {
	return folder != "" && below(realPath(path), realPath(folder))
}

func below(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// realPath is the path without links, as far as it exists.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(realPath(dir), filepath.Base(path))
	}
	return path
}

// SameRemote reports whether two URLs name the same repository: the way of reaching it, who reaches it and the end .git do not count.
func SameRemote(a, b string) bool {
	x, y := remote(a), remote(b)
	return x != "" && x == y
}

func remote(s string) string {
	host, path := "", ""
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && u.Host != "" {
		host, path = u.Host, u.Path
		if u.Scheme == "http" || u.Scheme == "git" {
			host = u.Scheme + "://" + host // whoever is on the way reads the token
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

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

// place is where a file lies: in the folder that it was found in, also when it is a link to a file of elsewhere. What the user said of
// that one was not said of a repository that links to it.
func place(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	return filepath.Join(realPath(filepath.Dir(file)), filepath.Base(file))
}

// TopOf is the Top of the repository that a file was found in, also when it is a link to a file of elsewhere.
func TopOf(file string) string { return Top(filepath.Dir(place(file))) }

// Repository is owner/name of a remote, as forges have it; empty: it has none.
func Repository(url string) string {
	_, path := remote(url)
	return path
}

// SameRemote reports whether two URLs name the same repository: the way of reaching it, who reaches it and the end .git do not count.
func SameRemote(a, b string) bool {
	host, path := remote(a)
	otherHost, otherPath := remote(b)
	return host != "" && host == otherHost && path == otherPath
}

// remote is the server and the path of a URL; empty: it is none.
func remote(s string) (host, path string) {
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
	return strings.ToLower(host), strings.TrimSuffix(strings.Trim(path, "/"), ".git")
}

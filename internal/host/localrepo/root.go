package localrepo

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RepoRoot returns the work tree or bare repository that contains a path, or "". It does not run git: an untrusted repository must not
// influence the answer.
func RepoRoot(path string) string { return repoAbove(RealPath(path)) }

// repoAbove returns the nearest work tree or bare repository among a path and its parents by name.
func repoAbove(path string) string {
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

// RepoOf returns the repository of a project file: the one that its path leads through, if the file really is in it. It is "" without
// one, and if a link leads out of that repository.
func RepoOf(file string) string {
	byName, root := repoAbove(filepath.Dir(AbsPath(file))), RepoRoot(file)
	if byName == "" || RealPath(byName) != root {
		return ""
	}
	return root
}

// ReposOf returns all repositories of a file: the one that its path leads through, and those that really contain the file and its
// directory.
func ReposOf(file string) (roots []string) {
	byName := repoAbove(filepath.Dir(AbsPath(file)))
	if byName != "" {
		byName = RealPath(byName)
	}
	for _, root := range []string{byName, RepoRoot(filepath.Dir(file)), RepoRoot(file)} {
		if root != "" && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	return roots
}

// Within reports whether a path is in a directory, after resolving links in both.
func Within(path, dir string) bool { return dir != "" && Below(RealPath(path), RealPath(dir)) }

// Below reports whether a path is in a directory, by name.
func Below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// RealPath resolves the links of a path as far as the path exists.
func RealPath(path string) string {
	path = AbsPath(path)
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(RealPath(dir), filepath.Base(path))
	}
	return path
}

// AbsPath returns the absolute path without resolving links, or the path itself where the working directory is unknown.
func AbsPath(path string) string {
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

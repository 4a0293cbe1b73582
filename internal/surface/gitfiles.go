package surface

import (
	"path"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// checkSubmodules reports addresses of submodules, and keys that make git run something.
func checkSubmodules(c *change, s *sink) {
	if c.deleted() {
		s.add(kindSubmodule, 0, false, "removed")
		return
	}
	c.diff()
	for _, l := range meaning(c, c.added) {
		key, value, _ := strings.Cut(strings.TrimSpace(l.text), "=")
		switch key = strings.ToLower(strings.TrimSpace(key)); {
		case key == "url":
			s.add(kindSubmodule, l.n, true, "address: %s", quote(value))
		case key == "update" && strings.Contains(value, "!"), strings.Contains(value, "::"), strings.HasPrefix(strings.TrimSpace(value), "-"):
			s.add(kindSubmodule, l.n, true, "runs a command: %s", quote(l.text))
		case key == "path" && (strings.Contains(value, "..") || strings.Contains(strings.ToLower(value), ".git")):
			s.add(kindSubmodule, l.n, true, "an odd folder: %s", quote(l.text))
		case strings.HasPrefix(key, "["):
		case key == "branch" || key == "ignore" || key == "update":
			s.add(kindSubmodule, l.n, key == "ignore", "new: %s", quote(l.text))
		}
	}
}

// attribute finds attributes that run something, or change what a reviewer sees.
var (
	attributeRuns  = pattern.New(`(?i)\b(filter|diff|merge)=(\S+)`)
	attributeHides = pattern.New(`(?i)(^|\s)(-diff|binary|linguist-generated(=true)?|linguist-vendored(=true)?|export-subst|working-tree-encoding=\S+|-text\b.*-diff)(\s|$)`)
	plainDrivers   = keys("lfs union text binary ours astextplain ada bash bibtex cpp csharp css dts elixir fortran fountain golang html java kotlin markdown matlab objc pascal perl php python ruby rust scheme tex")
	sourcePattern  = pattern.New(`(?i)^\S*(\*|\.(go|js|ts|tsx|jsx|py|rb|rs|java|c|cc|cpp|h|cs|php|sh|ya?ml|toml|json|mk)|makefile|dockerfile)\s`)
)

// checkAttributes reports filters and drivers by name, and rules that keep source out of a diff.
func checkAttributes(c *change, s *sink) {
	if c.deleted() {
		return
	}
	c.diff()
	for _, l := range meaning(c, c.added) {
		for _, m := range attributeRuns.FindAllStringSubmatch(l.text, -1) {
			known := plainDrivers[strings.ToLower(m[2])]
			if !known || m[1] == "filter" {
				s.add(kindAttributes, l.n, !known, "names a program: %s", quote(l.text))
			}
		}
		if strings.HasPrefix(strings.TrimSpace(l.text), "[attr]") || attributeHides.MatchString(l.text) && sourcePattern.MatchString(strings.TrimSpace(l.text)) {
			s.add(kindAttributes, l.n, false, "hides or changes what a diff shows: %s", quote(l.text))
		}
	}
}

// checkLink judges a link by what it leads to.
func checkLink(c *change, s *sink) {
	target := strings.TrimRight(c.new, "\x00")
	to := path.Join(path.Dir(c.path), target)
	low := strings.ToLower(strings.ReplaceAll(target, `\`, "/"))
	switch {
	case c.rule != nil || settingsPlace(c.lower):
		if c.rule != nil && c.rule.kind == kindInstructions && classify(strings.ToLower(to)) != nil {
			s.add(kindInstructions, 0, false, "a link to %s", quote(target)) // CLAUDE.md to AGENTS.md is common
			return
		}
		s.add(kindSymlink, 0, true, "a link in the place of settings, to %s", quote(target))
	case path.IsAbs(target), strings.HasPrefix(target, "~"), len(low) > 2 && low[1] == ':' && low[2] == '/', strings.HasPrefix(low, "//"):
		s.add(kindSymlink, 0, true, "leads out of the repository, to %s", quote(target))
	case to == ".." || strings.HasPrefix(to, "../"), escapes(path.Dir(c.path), target):
		s.add(kindSymlink, 0, true, "leads out of the repository, to %s", quote(target))
	case gitName(to) || gitName(low):
		s.add(kindSymlink, 0, true, "leads into git's own folder, to %s", quote(target))
	}
}

// escapes walks a target: a path that leaves the repository and comes back by another name is outside on the way.
func escapes(dir, target string) bool {
	depth := 0
	if dir != "." {
		depth = strings.Count(dir, "/") + 1
	}
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// gitName reports whether a path has a part that some file system takes for .git.
func gitName(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		// HFS+ ignores invisible characters; NTFS trailing dots and blanks, a stream, and it has short names.
		part = strings.Map(func(r rune) rune {
			if hiddenClass(r) != "" {
				return -1
			}
			return r
		}, part)
		part, _, _ = strings.Cut(strings.ToLower(part), ":")
		part = strings.TrimRight(part, ". ")
		if part == ".git" || part == "git~1" {
			return true
		}
	}
	return false
}

// deviceName is a name that Windows takes for something else than a file.
var deviceName = pattern.New(`(?i)(^|/)(con|prn|aux|nul|com[1-9]|lpt[1-9])(\.[^/]*)?(/|$)`)

// checkPath judges the name itself.
func checkPath(c *change, s *sink) {
	if c.deleted() || !c.created() {
		return
	}
	p := c.path
	switch {
	case gitName(p) || strings.Contains(p, `\`) && gitName(strings.ReplaceAll(p, `\`, "/")):
		s.add(kindGitPath, 0, true, "some file systems take it for git's own folder")
	case strings.HasPrefix(p, "/") || strings.Contains("/"+p+"/", "/../"):
		s.add(kindGitPath, 0, true, "it leads out of the repository")
	case strings.Contains(p, `\`) && strings.Contains(p, `..`):
		s.add(kindGitPath, 0, true, "on Windows it leads out of its folder")
	case deviceName.MatchString(p):
		s.add(kindGitPath, 0, false, "Windows takes it for a device")
	}
	for _, h := range scan(p, true) {
		s.add(h.kind, 0, true, "in the file's name: %s", h.what)
	}
	if strings.Contains(p, "\n") || strings.Contains(p, "\r") || strings.HasSuffix(p, " ") || strings.Contains(p, "     ") {
		s.add(kindControl, 0, true, "the file's name does not show where it ends")
	}
}

// checkMode reports a file that can be run now, and one that is a submodule now.
func checkMode(c *change, s *sink) {
	switch {
	case c.newMode == modeSubmodule && c.oldMode != modeSubmodule:
		s.add(kindSubmodule, 0, true, "new submodule at %.12s", c.newID)
	case c.newMode == modeSubmodule:
		s.add(kindSubmodule, 0, false, "another commit of the submodule: %.12s to %.12s", c.oldID, c.newID)
	case c.newMode == modeExecutable && isFile(c.oldMode) && c.oldMode != modeExecutable:
		s.add(kindMode, 0, dataFile[c.ext()], "can be run as a program now")
	case c.newMode == modeExecutable && c.created() && !s.found(kindBinary) && (c.rule == nil || c.rule.kind != kindHook):
		s.add(kindMode, 0, dataFile[c.ext()], "new file that can be run as a program")
	}
}

// dataFile are names of what is no program.
var dataFile = map[string]bool{
	".png": true, ".jpg": true, ".jpeg": true, ".gif": true, ".webp": true, ".svg": true, ".ico": true, ".pdf": true, ".md": true, ".txt": true, ".json": true, ".csv": true,
	".lock": true, ".ttf": true, ".woff": true, ".woff2": true, ".mp3": true, ".mp4": true, ".log": true,
}

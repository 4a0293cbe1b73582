package trust

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

const (
	maxScript  = 16 << 20      // bytes; a larger file is not a script
	maxScripts = 4 * maxScript // bytes of all scripts, which are held in memory
)

type script struct {
	rel     string // relative to the repository
	content []byte
	mode    fs.FileMode
}

// Sum is the hash of the project file, the repository's files that its commands name, and the targets of its secret
// files, which may be links. It does not depend on the working directory.
func Sum(p *projects.Project) string { return sum(p, scripts(p)) }

func sum(p *projects.Project, list []script) string {
	h := sha256.New()
	add := func(what string, content []byte) {
		fmt.Fprintf(h, "%d %s %d\n", len(what), what, len(content))
		h.Write(content)
	}
	add("project", p.Content())
	for _, s := range p.Secrets {
		for _, from := range s.From {
			if from.Scheme == projects.SecretFile {
				add("file "+s.Name, []byte(localrepo.RealPath(from.Target)))
			}
		}
	}
	for _, s := range list {
		add("script "+s.rel, s.content)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ChangedError reports that the project or a file that its commands name has changed since the user trusted it.
type ChangedError struct{ File string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("the project file %s, or a script that it names, changed while the task was being prepared", e.File)
}

// Stage creates a directory with only the files that the project's commands name, as they were trusted, and returns the
// project file's directory in it. Commands run there, because programs also load files of their directory that the user
// has not seen, such as a Makefile.
func Stage(p *projects.Project, trusted string) (dir string, remove func(), err error) {
	list := scripts(p)
	if sum(p, list) != trusted {
		return "", nil, &ChangedError{p.Path()}
	}
	stage, err := os.MkdirTemp("", "sandbox-agent-commands-")
	if err != nil {
		return "", nil, fmt.Errorf("create a directory for the commands of %s: %w", p.Path(), err)
	}
	remove = func() { _ = os.RemoveAll(stage) } // it has only copies
	base, top := places(p)
	rel, err := filepath.Rel(top, base)
	dir = filepath.Join(stage, rel)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	for _, s := range list {
		name := filepath.Join(stage, s.rel)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(name), 0o700)
		}
		if err == nil {
			err = os.WriteFile(name, s.content, s.mode&0o500|0o400)
		}
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("copy the files that the commands of %s name: %w", p.Path(), err)
	}
	return dir, remove, nil
}

// places returns the project file's directory and the root of its repository, or the directory itself; both without links.
func places(p *projects.Project) (base, top string) {
	base, top = localrepo.RealPath(p.Dir), localrepo.RepoRoot(p.Dir)
	top = cmp.Or(top, base)
	return base, top
}

// commands returns the commands that secrets are read from.
func commands(p *projects.Project) (list []string) {
	for _, s := range p.Secrets {
		for _, from := range s.From {
			if from.Scheme == projects.SecretCmd {
				list = append(list, from.Target)
			}
		}
	}
	return list
}

// scripts returns the files that commands name.
func scripts(p *projects.Project) (list []script) {
	base, top := places(p)
	seen := map[string]bool{}
	left := maxScripts
	for _, command := range commands(p) {
		for _, word := range strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\n'\"`;|&<>(){}$=,", r) }) {
			name := named(word, base)
			if !localrepo.Below(name, top) {
				name = localrepo.RealPath(name) // a link from elsewhere
			}
			rel, err := filepath.Rel(top, name)
			if err != nil || !filepath.IsLocal(rel) || seen[rel] {
				continue
			}
			seen[rel] = true
			if content, mode, ok := readScript(name, min(maxScript, left)); ok {
				list = append(list, script{rel, content, mode})
				left -= min(len(content), left)
			}
		}
	}
	return list
}

// named returns the file that a word of a command may name.
func named(word, base string) string {
	for _, home := range []string{"~/", "HOME/"} { // the $ separates words
		if rest, ok := strings.CutPrefix(word, home); ok {
			if dir, err := os.UserHomeDir(); err == nil {
				return filepath.Join(localrepo.RealPath(dir), rest)
			}
		}
	}
	if filepath.IsAbs(word) {
		return filepath.Join(localrepo.RealPath(filepath.Dir(word)), filepath.Base(word))
	}
	return filepath.Join(base, word)
}

// readScript reads a regular file. If it has more than most bytes, it returns the size and time instead, and a mode without permissions.
func readScript(name string, most int) ([]byte, fs.FileMode, bool) {
	st, err := os.Stat(name)
	if err != nil || !st.Mode().IsRegular() {
		return nil, 0, false
	}
	if st.Size() > int64(most) {
		return fmt.Appendf(nil, "%d bytes of %s", st.Size(), st.ModTime()), 0, true
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, false
	}
	defer f.Close()
	c, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	return c, st.Mode(), err == nil && len(c) <= most
}

// Package media takes the pictures, videos and texts that the agent leaves for the reviewer out of a folder of the agent's into the result.
package media

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// Var is the variable with the agent's folder for its own pictures.
	Var = "SANDBOX_AGENT_MEDIA"
	// outDir is where they go, relative to the result's folder.
	outDir = workorder.EvidenceDir + "/media"
	// maxFiles, maxFile and maxBytes bound what is taken, the latter in bytes: a reviewer looks at a few, and
	// all of it is kept with the result.
	maxFiles = 40
	maxFile  = 16 << 20
	maxBytes = 32 << 20
	// maxNames bounds the names that are looked at, in a folder that can have any number.
	maxNames = 1000
	maxName  = 100
)

// kinds maps file name extensions to kinds of evidence; other files are not taken.
var kinds = map[string]string{
	".png": workorder.EvidenceScreenshot, ".jpg": workorder.EvidenceScreenshot, ".jpeg": workorder.EvidenceScreenshot,
	".webp": workorder.EvidenceScreenshot, ".gif": workorder.EvidenceScreenshot,
	".webm": workorder.EvidenceVideo, ".mp4": workorder.EvidenceVideo,
	".txt": "text", ".md": "text", ".log": "text", ".json": "text",
}

// Folder is the folder in which the agent leaves pictures for the reviewer. Its parent is ours: the folder cannot be put
// into another's place.
type Folder struct {
	// Path is the folder's own.
	Path string

	out   string
	user  *proc.Credential
	shown func(string) string

	taken map[string]bool // files of earlier processes of the agent, which stay for later ones to see
	used  map[string]bool // names in the result
	bytes int64
}

// Make makes the folder at path for user; nil means the caller's. The files that Keep takes go below out, the result's folder, with
// names and texts as shown changes them.
func Make(path, out string, user *proc.Credential, shown func(string) string) (*Folder, error) {
	m := &Folder{Path: path, out: out, user: user, shown: shown, taken: map[string]bool{}, used: map[string]bool{}}
	return m, m.make()
}

func (m *Folder) make() error {
	err := os.Mkdir(m.Path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("there is no folder for the agent's pictures: %s is there already", m.Path)
	}
	if err == nil && m.user != nil {
		err = os.Lchown(m.Path, int(m.user.UID), int(m.user.GID))
	}
	if err != nil {
		return fmt.Errorf("there is no folder for the agent's pictures: %w", err)
	}
	return nil
}

// Keep takes what is new in the folder, in the order of the names. Folders in it are not looked into.
func (m *Folder) Keep() (files []workorder.Evidence, warnings []string) {
	root, err := os.OpenRoot(m.Path)
	if err != nil {
		return nil, []string{fmt.Sprintf("the agent's pictures were not taken: %v", err)}
	}
	defer root.Close()
	names, err := m.names(root)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("not all of the agent's pictures were looked at: %v", err))
	}
	left := 0
	for _, name := range names {
		kind := kinds[strings.ToLower(path.Ext(name))]
		if kind == "" {
			left++
			continue
		}
		e, err := m.take(root, name, kind)
		switch {
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("a picture of the agent's was not taken: %s: %v", m.shown(plainName(name)), err))
		case e.Path != "":
			files = append(files, e)
		}
		if len(warnings) >= maxFiles {
			break
		}
	}
	if left > 0 {
		warnings = append(warnings, fmt.Sprintf("%d files in the agent's folder for pictures are none: pictures, videos and text are taken, by the end of their names", left))
	}
	return files, warnings
}

func (m *Folder) names(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxNames)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.Sort(names)
	return names, err
}

// take copies a file. No path: it was taken before.
func (m *Folder) take(root *os.Root, name, kind string) (workorder.Evidence, error) {
	f, fi, err := untrusted.Open(root, name, m.user.Owner())
	if err != nil {
		return workorder.Evidence{}, err
	}
	defer f.Close()
	if fi.Size() > maxFile {
		return workorder.Evidence{}, fmt.Errorf("it has more than %d MiB", maxFile>>20)
	}
	once := fmt.Sprintf("%s\x00%d\x00%s", name, fi.Size(), fi.ModTime().Format(time.RFC3339Nano))
	if m.taken[once] {
		return workorder.Evidence{}, nil
	}
	if len(m.taken) >= maxFiles || m.bytes+fi.Size() > maxBytes {
		return workorder.Evidence{}, fmt.Errorf("there are more than %d files, or %d MiB", maxFiles, maxBytes>>20)
	}
	m.taken[once] = true
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return workorder.Evidence{}, err
	}
	m.bytes += int64(len(b))
	if kind == "text" {
		b = []byte(m.shown(string(b)))
	}
	to := m.free(m.shown(plainName(name)))
	if err := os.MkdirAll(filepath.Join(m.out, filepath.FromSlash(outDir)), 0o755); err != nil {
		return workorder.Evidence{}, err
	}
	if err := os.WriteFile(filepath.Join(m.out, filepath.FromSlash(outDir), to), b, 0o644); err != nil {
		return workorder.Evidence{}, err
	}
	return workorder.Evidence{Name: titled + to, Path: outDir + "/" + to, Kind: kind}, nil
}

// titled begins the name of a file that the agent left.
const titled = "the agent's own: "

// free is a name that is not used yet.
func (m *Folder) free(name string) string {
	to := name
	for i := 2; m.used[to]; i++ {
		ext := path.Ext(name)
		to = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), i, ext)
	}
	m.used[to] = true
	return to
}

// plainName is a file's name of letters that are safe in a path, a link and a terminal.
func plainName(name string) string {
	ext := strings.ToLower(path.Ext(name))
	stem := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c) {
			return c
		}
		return '_'
	}, strings.TrimSuffix(name, path.Ext(name)))
	if stem = strings.TrimLeft(stem, "."); stem == "" {
		stem = "_"
	}
	if kinds[ext] == "" {
		ext = ""
	}
	return stem[:min(len(stem), maxName)] + ext
}

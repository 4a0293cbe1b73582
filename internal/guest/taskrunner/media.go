package taskrunner

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
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// mediaVar is the variable with the agent's directory for its own pictures.
	mediaVar = "SANDBOX_AGENT_MEDIA"
	// mediaOut is their destination, relative to the result directory.
	mediaOut = workorder.EvidenceDir + "/media"
	// maxMediaFiles, maxFile and maxBytes bound the copied files, the latter two in bytes.
	maxMediaFiles = 40
	maxMediaFile  = 16 << 20
	maxMediaBytes = 32 << 20
	// maxMediaNames bounds the examined names, in a directory that can have any number.
	maxMediaNames = 1000
	maxMediaName  = 100
)

// mediaKinds maps file name extensions to mediaKinds of evidence; other files are not copied.
var mediaKinds = map[string]string{
	".png": workorder.EvidenceScreenshot, ".jpg": workorder.EvidenceScreenshot, ".jpeg": workorder.EvidenceScreenshot,
	".webp": workorder.EvidenceScreenshot, ".gif": workorder.EvidenceScreenshot,
	".webm": workorder.EvidenceVideo, ".mp4": workorder.EvidenceVideo,
	".txt": "text", ".md": "text", ".log": "text", ".json": "text",
}

// mediaDir is the directory for the agent's pictures. Root owns its parent, so that it cannot be replaced.
type mediaDir struct {
	path string

	out   string
	user  *proc.Credential
	shown func(string) string

	taken map[string]bool // files of earlier processes of the agent, which stay visible to later ones
	used  map[string]bool // names in the result
	bytes int64
}

// newMediaDir creates the directory at path for user; nil means the current user. Files are copied below out; shown
// cleans names and texts.
func newMediaDir(path, out string, user *proc.Credential, shown func(string) string) (*mediaDir, error) {
	m := &mediaDir{path: path, out: out, user: user, shown: shown, taken: map[string]bool{}, used: map[string]bool{}}
	return m, m.make()
}

func (m *mediaDir) make() error {
	err := os.Mkdir(m.path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("no directory for the agent's pictures: %s already exists", m.path)
	}
	if err == nil && m.user != nil {
		err = os.Lchown(m.path, int(m.user.UID), int(m.user.GID))
	}
	if err != nil {
		return fmt.Errorf("no directory for the agent's pictures: %w", err)
	}
	return nil
}

// collect copies new files of the directory, sorted by name. It ignores subdirectories.
func (m *mediaDir) collect() (files []workorder.Evidence, warnings []string) {
	root, err := os.OpenRoot(m.path)
	if err != nil {
		return nil, []string{fmt.Sprintf("the agent's pictures were not copied: %v", err)}
	}
	defer root.Close()
	names, err := m.names(root)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("not all of the agent's pictures were examined: %v", err))
	}
	left := 0
	for _, name := range names {
		kind := mediaKinds[strings.ToLower(path.Ext(name))]
		if kind == "" {
			left++
			continue
		}
		e, err := m.take(root, name, kind)
		switch {
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("a picture of the agent was not copied: %s: %v", m.shown(plainName(name)), err))
		case e.Path != "":
			files = append(files, e)
		}
		if len(warnings) >= maxMediaFiles {
			break
		}
	}
	if left > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"%d files in the agent's directory for pictures were ignored: only pictures, videos and text are copied, by file name extension", left,
		))
	}
	return files, warnings
}

func (m *mediaDir) names(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxMediaNames)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.Sort(names)
	return names, err
}

// take copies a file. The path is empty if it was copied before.
func (m *mediaDir) take(root *os.Root, name, kind string) (workorder.Evidence, error) {
	f, fi, err := safeopen.Open(root, name, m.user.Owner())
	if err != nil {
		return workorder.Evidence{}, err
	}
	defer f.Close()
	if fi.Size() > maxMediaFile {
		return workorder.Evidence{}, fmt.Errorf("it has more than %d MiB", maxMediaFile>>20)
	}
	once := fmt.Sprintf("%s\x00%d\x00%s", name, fi.Size(), fi.ModTime().Format(time.RFC3339Nano))
	if m.taken[once] {
		return workorder.Evidence{}, nil
	}
	if len(m.taken) >= maxMediaFiles || m.bytes+fi.Size() > maxMediaBytes {
		return workorder.Evidence{}, fmt.Errorf("there are more than %d files, or %d MiB", maxMediaFiles, maxMediaBytes>>20)
	}
	m.taken[once] = true
	b, err := io.ReadAll(io.LimitReader(f, maxMediaFile))
	if err != nil {
		return workorder.Evidence{}, err
	}
	m.bytes += int64(len(b))
	if kind == "text" {
		b = []byte(m.shown(string(b)))
	}
	to := m.free(m.shown(plainName(name)))
	if err := os.MkdirAll(filepath.Join(m.out, filepath.FromSlash(mediaOut)), 0o755); err != nil {
		return workorder.Evidence{}, err
	}
	if err := os.WriteFile(filepath.Join(m.out, filepath.FromSlash(mediaOut), to), b, 0o644); err != nil {
		return workorder.Evidence{}, err
	}
	return workorder.Evidence{Name: mediaTitle + to, Path: mediaOut + "/" + to, Kind: kind}, nil
}

// mediaTitle starts the title of a file that the agent left.
const mediaTitle = "the agent's own: "

func (m *mediaDir) free(name string) string {
	to := name
	for i := 2; m.used[to]; i++ {
		ext := path.Ext(name)
		to = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), i, ext)
	}
	m.used[to] = true
	return to
}

// plainName returns a file name with only characters that are safe in a path, a link and a terminal.
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
	if mediaKinds[ext] == "" {
		ext = ""
	}
	return stem[:min(len(stem), maxMediaName)] + ext
}

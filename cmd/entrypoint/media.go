package main

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
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// mediaVar tells the agent the folder for pictures of its own.
	mediaVar = "SANDBOX_AGENT_MEDIA"
	// mediaDir is where they go, relative to the result's folder.
	mediaDir = workorder.EvidenceDir + "/media"
	// maxMediaFiles, maxMediaFile and maxMediaBytes bound what is taken, the latter in bytes: a reviewer looks at a few, and
	// all of it is kept with the result.
	maxMediaFiles = 40
	maxMediaFile  = 16 << 20
	maxMediaBytes = 32 << 20
	// maxMediaNames bounds the names that are looked at, in a folder that can have any number.
	maxMediaNames = 1000
	maxMediaName  = 100
)

// mediaKinds says what a file is by its name's end; no other is taken.
var mediaKinds = map[string]string{
	".png": workorder.EvidenceScreenshot, ".jpg": workorder.EvidenceScreenshot, ".jpeg": workorder.EvidenceScreenshot,
	".webp": workorder.EvidenceScreenshot, ".gif": workorder.EvidenceScreenshot,
	".webm": workorder.EvidenceVideo, ".mp4": workorder.EvidenceVideo,
	".txt": "text", ".md": "text", ".log": "text", ".json": "text",
}

// media is the folder in which the agent leaves pictures for the reviewer. Its parent is ours: the folder cannot be put
// into another's place.
type media struct {
	dir, out string
	user     *proc.Credential
	shown    func(string) string

	taken map[string]bool // files of earlier processes of the agent, which stay for later ones to see
	used  map[string]bool // names in the result
	bytes int64
}

// media gives the agent its folder, and returns what takes the pictures when it has ended.
func (t *task) media(cfg *runner.Config) (keep func() ([]workorder.Evidence, []string)) {
	if t.kept == nil {
		m := &media{
			dir: filepath.Join(filepath.Dir(cfg.OutDir), "media"), out: cfg.OutDir, user: cfg.User, shown: cfg.Redact.String,
			taken: map[string]bool{}, used: map[string]bool{},
		}
		if err := m.make(); err != nil {
			return func() ([]workorder.Evidence, []string) { return nil, []string{err.Error()} }
		}
		t.kept = m
	}
	cfg.Env = append(cfg.Env, mediaVar+"="+t.kept.dir)
	return t.kept.keep
}

func (m *media) make() error {
	err := os.Mkdir(m.dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("there is no folder for the agent's pictures: %s is there already", m.dir)
	}
	if err == nil && m.user != nil {
		err = os.Lchown(m.dir, int(m.user.UID), int(m.user.GID))
	}
	if err != nil {
		return fmt.Errorf("there is no folder for the agent's pictures: %w", err)
	}
	return nil
}

// keep takes what is new in the folder, in the order of the names. Folders in it are not looked into.
func (m *media) keep() (files []workorder.Evidence, warnings []string) {
	root, err := os.OpenRoot(m.dir)
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
		kind := mediaKinds[strings.ToLower(path.Ext(name))]
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
		if len(warnings) >= maxMediaFiles {
			break
		}
	}
	if left > 0 {
		warnings = append(warnings, fmt.Sprintf("%d files in the agent's folder for pictures are none: pictures, videos and text are taken, by the end of their names", left))
	}
	return files, warnings
}

func (m *media) names(root *os.Root) ([]string, error) {
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

// take copies a file. No path: it was taken before.
func (m *media) take(root *os.Root, name, kind string) (workorder.Evidence, error) {
	f, fi, err := untrusted.Open(root, name, m.user.Owner())
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
	if err := os.MkdirAll(filepath.Join(m.out, filepath.FromSlash(mediaDir)), 0o755); err != nil {
		return workorder.Evidence{}, err
	}
	if err := os.WriteFile(filepath.Join(m.out, filepath.FromSlash(mediaDir), to), b, 0o644); err != nil {
		return workorder.Evidence{}, err
	}
	return workorder.Evidence{Name: "the agent's own: " + to, Path: mediaDir + "/" + to, Kind: kind}, nil
}

// free is a name that is not used yet.
func (m *media) free(name string) string {
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
	if mediaKinds[ext] == "" {
		ext = ""
	}
	return stem[:min(len(stem), maxMediaName)] + ext
}

// Package setupcache stores the files that setup left on a base commit, and what the checks wrote there in a clean room,
// and mounts them below the directories of later boxes.
package setupcache

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cachevolume"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	format = "setup-v1"
	// maxLayers bounds the snapshots above each other: each lookup of a file passes all.
	maxLayers = 6
	// keptPerProject bounds a project's topmost snapshots: branches with different lock files alternate.
	keptPerProject = 4
	// grace is the time in which rescue takes over from a boot that died: it starts within seconds.
	grace = 2 * time.Minute
	// lowDisk is the free space, in bytes, below which nothing is stored.
	lowDisk = 4 << 30
)

// Dir is a directory that gets layers below its content.
type Dir struct {
	Name string // of its directory in a snapshot
	Path string // path in the box
	// Whole means that only a snapshot of the same key fits: the work tree. A home's stores are addressed by content.
	Whole bool
	// Scratch marks directories of temporary files, which a box gets only if it runs no setup command.
	Scratch bool
	// Apart lists its subdirectories that are not part of a snapshot and stay at their paths.
	Apart []string
	// Own lists its files that a box writes for itself. No snapshot has them.
	Own []string
}

// Config describes the snapshots of one box.
type Config struct {
	MountDir string // root's directory for the mounts, in which Reserve has mounted the volume; without it there are no snapshots
	ID       string // identifies the run uniquely among the boxes of the engine
	Dirs     []Dir
	// User is the user of Dirs: they are mounted in the user's mount namespace, too.
	User *proc.Credential
	// Secret reports whether a text has a secret that setup knew. Nil if there were none.
	Secret func(io.Reader) (bool, error)
	// Unseen lists secrets that Secret cannot find.
	Unseen []string
	// Binding counts the running containers that bind directories of the user. Nil if there are none.
	Binding func(context.Context) (int, error)
	// Beside describes the files that the user wrote outside of Dirs, by path. Nil if there are none.
	Beside func(context.Context) (map[string]string, error)
	Log    *slog.Logger
}

// Meta describes a snapshot.
type Meta struct {
	ID  string `json:"-"` // name of its directory
	Key string `json:"key"`
	// Tree is the id of the base commit's tree.
	Tree string `json:"tree"`
	// Layers are the ids of the snapshots below it, by Dir.Name, uppermost first.
	Layers map[string][]string `json:"layers"`
	// Whole means that setup changed nothing outside of Config.Dirs.
	Whole bool `json:"whole"`
	// Scratch means that setup left files in a directory of temporary files.
	Scratch bool `json:"scratch,omitempty"`
	// Warm means that it has the caches of the checks, too.
	Warm bool `json:"warm,omitempty"`
	// Made is when setup, or the checks, ended.
	Made time.Time `json:"made"`
	// Project is the repository's address, Branch the base branch, Image the id of the box's image. Older entries have no
	// branch and no image.
	Project string `json:"project"`
	Branch  string `json:"branch,omitempty"`
	Image   string `json:"image,omitempty"`
}

// Store is one box's access to the snapshots. It is not safe for concurrent use.
type Store struct {
	cfg  Config
	dir  *cachevolume.Dir
	root *os.Root // handle on the directory, which stays valid when the volume is no longer reachable

	project string // directory of the project
	want    Key
	under   *Meta // the snapshot below; nil if none
	matches bool  // it has the wanted key
	emptied bool  // setup could not run on top of it
	mounts  mounts
	fresh   map[string]string // upper directories of the last clean checkout, by Dir.Name
	apartAt string            // state of the separate directories before setup
	beside  map[string]string // result of Config.Beside before setup; nil if it failed
}

// Key describes the snapshot that a box would use.
type Key struct {
	Project string // the repository's address
	Branch  string // base branch of the task
	Image   string // id of the box's image; without it there are no snapshots
	Digest  string // digest of everything that setup depends on
	Tree    string // id of the commit's tree
	// Installs means that setup has no command that must run even with the same key.
	Installs bool
}

// volume is where Reserve mounts the volume, in Config.MountDir.
const volume = "volume"

// Reserve mounts the volume in a directory of root for Store.Mount, because the volume's own mount point may be closed.
func Reserve(mountPoint, dir string) error {
	if !isMount(mountPoint) {
		return nil
	}
	if err := bind(mountPoint, filepath.Join(dir, volume), false); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// New returns the store; nothing is touched yet.
func New(c Config) *Store {
	return &Store{cfg: c, mounts: mounts{root: c.MountDir, user: c.User}, fresh: map[string]string{}}
}

// Mount mounts the wanted snapshot below the directories, or harmless parts of another one, and the box's own
// directories above. note describes the result. An error leaves the directories unchanged and must not fail the run.
func (s *Store) Mount(ctx context.Context, w Key) (note string, err error) {
	switch {
	case !isMount(s.mounts.path(volume)):
		return "no volume is mounted", nil
	case w.Image == "":
		return "the image name is unknown", nil
	}
	s.want, s.project = w, projectDir(w.Project, w.Branch, w.Image)
	err = s.open(ctx)
	if err == nil {
		err = s.mountAll()
	}
	// From here on only the directory's handle leads to the volume, which untrusted code cannot get.
	if err = errors.Join(err, drop(s.mounts.path(volume))); err != nil {
		s.under, s.matches = nil, false // so that setup runs
		return "", errors.Join(err, s.mounts.unmountAll(), s.Close())
	}
	switch {
	case s.matches:
		return fmt.Sprintf("the files of setup at %s are there", s.under.Made.UTC().Format(time.DateTime)), nil
	case s.under != nil:
		return "the home has the files of another setup of this project", nil
	}
	return "nothing is stored for this project yet", nil
}

// open registers the box and chooses a snapshot.
func (s *Store) open(ctx context.Context) error {
	// Only root may enter the volume.
	if err := os.Chmod(s.mounts.path(volume), 0o700); err != nil {
		return err
	}
	s.dir = &cachevolume.Dir{Base: s.mounts.path(volume, format), ID: s.cfg.ID, Grace: grace, Log: s.cfg.Log}
	if err := s.dir.Open("kept"); err != nil {
		return err
	}
	err := s.dir.Exclusive(ctx, func() error {
		alive, err := s.dir.Register()
		if err != nil {
			return err
		}
		if err := (entries{s.dir}).bound(alive); err != nil {
			return err
		}
		if err := os.MkdirAll(s.dir.Path("kept", s.project), 0o700); err != nil {
			return err
		}
		if err := s.choose(); err != nil {
			return err
		}
		return s.use()
	})
	if err != nil {
		return err
	}
	if s.root, err = os.OpenRoot(s.dir.Base); err != nil {
		return err
	}
	trash, err := s.dir.Trash()
	if err != nil {
		return err
	}
	go s.dir.EmptyTrash(trash)
	for name, from := range map[string]string{"kept": s.dir.Path("kept", s.project), "run": s.dir.Run()} {
		if err := bind(from, filepath.Join(s.cfg.MountDir, name), name == "kept"); err != nil {
			return err
		}
	}
	return nil
}

// mountAll mounts all directories, each on the image's own directory.
func (s *Store) mountAll() error {
	for _, p := range s.cfg.Dirs {
		if _, err := os.Lstat(p.Path); errors.Is(err, os.ErrNotExist) {
			continue // a user's own image may lack it
		}
		if err := bind(p.Path, s.mounts.path("image", p.Name), true); err != nil {
			return err
		}
		for _, a := range p.Apart {
			if err := bind(filepath.Join(p.Path, a), s.mounts.path("apart", p.Name, a), false); err != nil {
				return err
			}
		}
		l := &mountedDir{Dir: p}
		if s.has(p) {
			l.layers = append([]string{s.under.ID}, s.under.Layers[p.Name]...)
		}
		s.mounts.dirs = append(s.mounts.dirs, l)
		if err := s.mounts.mount(l); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a directory starts with the content of the snapshot below.
func (s *Store) has(p Dir) bool {
	switch {
	case s.under == nil:
		return false
	case p.Scratch:
		_, same := s.Matches()
		return same || s.matches && s.want.Installs
	}
	return s.matches || !p.Whole
}

// choose takes the newest snapshot of the key, or else the project's newest. The directory is locked.
func (s *Store) choose() error {
	all, err := project(s.dir.Path("kept", s.project))
	if err != nil {
		return err
	}
	for i := range all {
		m := &all[i]
		same := m.Key == s.want.Digest
		if s.under == nil || same && (!s.matches || m.Tree == s.want.Tree && s.under.Tree != s.want.Tree) {
			s.under, s.matches = m, same
		}
	}
	if s.under != nil && !s.matches && s.under.depth() >= maxLayers {
		s.under = nil // occasionally start from nothing, which drops files that are no longer needed
	}
	return nil
}

// use records the snapshots below this box, so that other boxes do not remove them.
func (s *Store) use() error {
	if s.under == nil {
		return nil
	}
	ids := s.under.needs()
	now := time.Now()
	if err := os.Chtimes(s.dir.Path("kept", s.project, s.under.ID), now, now); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir.Run(), usesFile), []byte(strings.Join(ids, "\n")+"\n"), 0o600)
}

// Matches reports whether the wanted snapshot is below. same: of the same tree, and setup changed nothing outside.
func (s *Store) Matches() (fits, same bool) {
	return s.matches, s.matches && s.under.Whole && s.under.Tree == s.want.Tree
}

// Index returns git's index of the work tree below; nil if there is none, or git would not examine all of its files.
func (s *Store) Index() []byte {
	if !s.matches {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(s.cfg.MountDir, "kept", s.under.ID, indexFile))
	if err != nil || !honest(b, len(s.want.Tree)/2) {
		return nil
	}
	return b
}

// Attach stores data about a commit with the snapshot, if it has the wanted key.
func (s *Store) Attach(commit string, b []byte) error {
	if !s.matches {
		return nil
	}
	dir := filepath.Join("kept", s.project, s.under.ID)
	entries, err := os.ReadDir(s.mounts.path("kept", s.under.ID))
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), attachPrefix) && time.Since(info.ModTime()) > attachAge {
			err = s.root.Remove(filepath.Join(dir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.root.WriteFile(filepath.Join(dir, attachPrefix+commit), b, 0o600)
}

// Attached returns the data about a commit; nil if there is none.
func (s *Store) Attached(commit string) []byte {
	if !s.matches {
		return nil
	}
	b, err := os.ReadFile(s.mounts.path("kept", s.under.ID, attachPrefix+commit))
	if err != nil {
		return nil
	}
	return b
}

// Paths returns the paths of the directories with layers.
func (s *Store) Paths() (all []string) {
	for _, l := range s.mounts.dirs {
		all = append(all, l.Path)
	}
	return all
}

// Mounted reports whether the directories are mounted.
func (s *Store) Mounted() bool { return len(s.mounts.dirs) > 0 }

// OwnDir returns the path of the box's own directories in Config.MountDir, which counts as its disk use.
func OwnDir(dir string) string { return filepath.Join(dir, "run") }

// Hold keeps the directories of a box whose boot died for the program that continues with them, if they exist.
func Hold(dir string) error {
	err := cachevolume.Hold(OwnDir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeTime bounds the removal of the box's own directories at its end. The next box removes the rest.
const removeTime = 10 * time.Second

// Close removes the box's own directories, which may contain secrets. The directories must no longer be in use.
func (s *Store) Close() error {
	if s.dir == nil {
		return nil
	}
	var err error
	if s.root != nil {
		gone := filepath.Join("trash", s.cfg.ID+"-"+strings.ToLower(rand.Text()[:12]))
		if err = s.root.Rename(filepath.Join("runs", s.cfg.ID), gone); err == nil {
			removed := make(chan error, 1)
			go func() { removed <- s.root.RemoveAll(gone) }()
			select {
			case err = <-removed:
			case <-time.After(removeTime):
			}
		}
	}
	err = errors.Join(err, s.dir.Abandon())
	s.dir = nil
	return err
}

// projectDir returns the name of a project's directory.
func projectDir(repo, branch, image string) string { return sum(repo, branch, image) }

func project(dir string) (all []Meta, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		b, rerr := os.ReadFile(filepath.Join(dir, e.Name(), metaFile))
		if errors.Is(rerr, fs.ErrNotExist) {
			continue // incomplete
		}
		var m Meta
		if rerr == nil {
			rerr = json.Unmarshal(b, &m)
		}
		if rerr != nil {
			return nil, fmt.Errorf("read the snapshot %s: %w", e.Name(), rerr)
		}
		m.ID = e.Name()
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Meta) int { return b.Made.Compare(a.Made) })
	return all, err
}

// needs returns the snapshots that it depends on, itself included.
func (m *Meta) needs() []string {
	ids := map[string]bool{m.ID: true}
	for _, below := range m.Layers {
		for _, id := range below {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// depth returns the largest number of snapshots above each other.
func (m *Meta) depth() (n int) {
	for _, below := range m.Layers {
		n = max(n, len(below))
	}
	return n + 1
}

// Names of files of a snapshot and of a run.
const (
	metaFile  = "meta.json"
	indexFile = "index"
	usesFile  = "uses"
	// attachPrefix begins the names of files with data about a commit.
	attachPrefix = "known-"
)

// attachAge is how long data about a commit is kept.
const attachAge = 30 * 24 * time.Hour

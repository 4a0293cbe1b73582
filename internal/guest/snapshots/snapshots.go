// Package snapshots keeps what setup left on a base commit, and lays it below the folders of later boxes.
//
// A snapshot is the difference that setup made to the directories that it can write (the work tree, the home, those for temporary files), as
// folders of an overlay file system. Later boxes have them read-only below folders of their own, so that they are there at once, whatever their
// size, and no box changes what another has. Written is only what was there before code of a task could run: after setup, on the base commit of a new task.
//
// Layout, below <volume>/setup-v1 (a cachevolume.Folder):
//
//	kept/<project>/<id>/   meta.json, index (git's, of the work tree), a directory for each place (tree/, home/, tmp/)
//	runs/<id>/             uses (ids of the snapshots that the box has below it), and its own upper folders
//
// A project is a repository's address together with the base branch and the box's image: nothing of another repository, branch or image counts.
// Setup is code of the branch, and a branch may be one that an agent wrote.
package snapshots

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

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cachevolume"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	format = "setup-v1"
	// maxLayers bounds the snapshots that lie on each other: the kernel's bound is 500, and each look for a file passes all.
	maxLayers = 6
	// keptPerProject bounds a project's snapshots that no other one lies on: branches with different lock files alternate.
	keptPerProject = 4
	// grace is the time in which rescue takes over from a boot that died: it begins within seconds.
	grace = 2 * time.Minute
	// lowDisk is the free space, in bytes, below which nothing is kept.
	lowDisk = 4 << 30
)

// Place is a folder that lies on layers.
type Place struct {
	Name string // of the folder in a snapshot
	Path string // in the box
	// Whole is set where only a snapshot of the same key fits: the work tree. Elsewhere a snapshot of another key does no harm: a home has
	// stores that are asked by content.
	Whole bool
	// Scratch is set for directories of temporary files. A box has a snapshot's there only if it runs no setup command: one that runs again
	// finds them as the image has them, and so do the commands after a check.
	Scratch bool
	// Apart are folders of it that stay where they are.
	Apart []string
	// Own are files of it that a box writes for itself. No snapshot has them.
	Own []string
}

// Config describes the snapshots of one box.
type Config struct {
	Dir    string // folder of root's for the mounts, in which Reserve has the volume; without it there are no snapshots
	ID     string // names the run, unique among the boxes of the engine
	Places []Place
	// User is whom the places are for: they are laid in the user's mount namespace, too.
	User *proc.Credential
	// Secret reports whether a text has a secret that setup knew. Nil means that it knew none.
	Secret func(io.Reader) (bool, error)
	// Unseen are secrets that Secret cannot find.
	Unseen []string
	// Binding counts the running containers that have folders of the user's. Nil means that there are none.
	Binding func(context.Context) (int, error)
	// Beside describes what the user wrote to directories that are no places, one entry for each path. Nil means that there are none.
	Beside func(context.Context) (map[string]string, error)
	Log    *slog.Logger
}

// Meta describes a snapshot.
type Meta struct {
	ID  string `json:"-"` // the folder's name
	Key string `json:"key"`
	// Tree is the id of the base commit's tree.
	Tree string `json:"tree"`
	// Layers are the ids of the snapshots that it lies on, by the name of the place, the uppermost first.
	Layers map[string][]string `json:"layers"`
	// Whole says that setup did nothing beside the places.
	Whole bool `json:"whole"`
	// Scratch says that setup left something in a place of temporary files.
	Scratch bool `json:"scratch,omitempty"`
	// Made is when setup ended.
	Made time.Time `json:"made"`
	// Project is the repository's address, for people.
	Project string `json:"project"`
}

// Store is one box's access to the snapshots. It is not safe for concurrent use.
type Store struct {
	cfg    Config
	folder *cachevolume.Folder
	root   *os.Root // of the folder, which stays in reach when the volume is out of it

	project string // folder of the project's
	want    Want
	under   *Meta // the snapshot below; nil if there is none
	fits    bool  // it has the wanted key
	emptied bool  // setup could not run over it
	laid    []*laid
	uppers  int // made so far
	attach  []byte
	apartAt string            // how the folders apart were before setup
	beside  map[string]string // what Config.Beside found before setup; nil if it failed
}

// laid is a place and what it lies on.
type laid struct {
	Place
	layers []string // ids of snapshots, uppermost first
	upper  string   // name of its folder in the run's
	set    string   // name of the folder below that, which has what setup wrote to a place of temporary files; empty before SetAside
	shown  bool     // its path shows the layers
}

// Want is what a box would have.
type Want struct {
	Project string // the repository's address
	Branch  string // that the task begins on
	Image   string // id of the box's image; without it there are no snapshots
	Key     string // sum of all that setup depends on
	Tree    string // id of the commit's tree
	// Installs says that setup has no command which runs where the key is the same.
	Installs bool
}

// volume is where Reserve mounts the volume, in Config.Dir.
const volume = "volume"

// Reserve mounts the volume in a folder of root's for Lay, which takes it away again: before that, the volume's own mount point may be closed.
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
func New(c Config) *Store { return &Store{cfg: c} }

// Lay puts the wanted snapshot below the places, or what of another one does no harm, and folders of the box's own above. It says
// what it did. An error leaves the places as they were: a run must never fail for want of a snapshot.
func (s *Store) Lay(ctx context.Context, w Want) (note string, err error) {
	switch {
	case !isMount(s.at(volume)):
		return "no volume is mounted", nil
	case w.Image == "":
		return "nobody said which image this is", nil
	}
	s.want, s.project = w, sum(w.Project, w.Branch, w.Image)
	err = s.open(ctx)
	if err == nil {
		err = s.layAll()
	}
	// From here on only the folder's handle leads to the volume, which untrusted code cannot get.
	if err = errors.Join(err, drop(s.at(volume))); err != nil {
		s.under, s.fits = nil, false // setup must not be taken for done
		return "", errors.Join(err, s.takeAway(), s.Close())
	}
	switch {
	case s.fits:
		return fmt.Sprintf("what setup left at %s is there", s.under.Made.UTC().Format(time.DateTime)), nil
	case s.under != nil:
		return "the home has what another setup of this project left", nil
	}
	return "nothing is kept for this project yet", nil
}

// open registers the box and chooses a snapshot.
func (s *Store) open(ctx context.Context) error {
	// Only root may enter the volume.
	if err := os.Chmod(s.at(volume), 0o700); err != nil {
		return err
	}
	s.folder = &cachevolume.Folder{Base: s.at(volume, format), ID: s.cfg.ID, Grace: grace, Log: s.cfg.Log}
	if err := s.folder.Open("kept"); err != nil {
		return err
	}
	err := s.folder.Locked(ctx, unix.LOCK_EX, func() error {
		alive, err := s.folder.Register()
		if err != nil {
			return err
		}
		if err := (shelf{s.folder}).bound(alive); err != nil {
			return err
		}
		if err := os.MkdirAll(s.folder.Path("kept", s.project), 0o700); err != nil {
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
	if s.root, err = os.OpenRoot(s.folder.Base); err != nil {
		return err
	}
	trash, err := s.folder.Trash()
	if err != nil {
		return err
	}
	go s.folder.EmptyTrash(trash)
	for name, from := range map[string]string{"kept": s.folder.Path("kept", s.project), "run": s.folder.Run()} {
		if err := bind(from, filepath.Join(s.cfg.Dir, name), name == "kept"); err != nil {
			return err
		}
	}
	return nil
}

// choose takes the newest snapshot of the key, or else the project's newest. The folder is locked.
func (s *Store) choose() error {
	all, err := project(s.folder.Path("kept", s.project))
	if err != nil {
		return err
	}
	for i := range all {
		m := &all[i]
		same := m.Key == s.want.Key
		if s.under == nil || same && (!s.fits || m.Tree == s.want.Tree && s.under.Tree != s.want.Tree) {
			s.under, s.fits = m, same
		}
	}
	if s.under != nil && !s.fits && s.under.depth() >= maxLayers {
		s.under = nil // from nothing, once in a while: what nobody needs any more is gone then
	}
	return nil
}

// use notes which snapshots this box has below it, so that nobody removes them.
func (s *Store) use() error {
	if s.under == nil {
		return nil
	}
	ids := s.under.needs()
	now := time.Now()
	if err := os.Chtimes(s.folder.Path("kept", s.project, s.under.ID), now, now); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.folder.Run(), usesFile), []byte(strings.Join(ids, "\n")+"\n"), 0o600)
}

// Fits reports whether the snapshot of the wanted key is below. Same: of the same tree, and setup did nothing beside the places.
func (s *Store) Fits() (fits, same bool) {
	return s.fits, s.fits && s.under.Whole && s.under.Tree == s.want.Tree
}

// Index is git's index of the work tree below; nil if there is none, or one by which git would leave files as they are.
func (s *Store) Index() []byte {
	if !s.fits {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(s.cfg.Dir, "kept", s.under.ID, indexFile))
	if err != nil || !honest(b, len(s.want.Tree)/2) {
		return nil
	}
	return b
}

// Attach adds to the next snapshot what is known of the work tree's commit.
func (s *Store) Attach(b []byte) { s.attach = b }

// Attached is what is known of the commit of the snapshot below; nil if it is nothing.
func (s *Store) Attached() []byte {
	if !s.fits {
		return s.attach
	}
	b, err := os.ReadFile(s.at("kept", s.under.ID, attachFile))
	if err != nil {
		return s.attach
	}
	return b
}

// Paths are those of the places that lie on layers.
func (s *Store) Paths() (all []string) {
	for _, l := range s.laid {
		all = append(all, l.Path)
	}
	return all
}

// Laid reports whether the places lie on layers.
func (s *Store) Laid() bool { return len(s.laid) > 0 }

// Own is the path of the box's own folders in Config.Dir: what it takes of the disk.
func Own(dir string) string { return filepath.Join(dir, "run") }

// Hold keeps the folders of a box whose boot died for the program that goes on with them. There may be none.
func Hold(dir string) error {
	err := cachevolume.Hold(Own(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeTime bounds removing the box's own folders at its end. The next box removes the rest.
const removeTime = 10 * time.Second

// Close removes the box's own folders: secrets may be in them. Nothing may use the places any more.
func (s *Store) Close() error {
	if s.folder == nil {
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
	err = errors.Join(err, s.folder.Abandon())
	s.folder = nil
	return err
}

// project lists a project's whole snapshots, the newest first.
func project(dir string) (all []Meta, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		b, rerr := os.ReadFile(filepath.Join(dir, e.Name(), metaFile))
		if errors.Is(rerr, fs.ErrNotExist) {
			continue // half-made
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

// needs are the snapshots that must stay with it, itself included.
func (m *Meta) needs() []string {
	ids := map[string]bool{m.ID: true}
	for _, below := range m.Layers {
		for _, id := range below {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// depth is how many snapshots lie on each other at most.
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
	// attachFile is what is known of the commit.
	attachFile = "known"
)

package settings

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
)

// Entries are the settings' entries for a snapshot, by path, and the settings that are unchanged since Neutralize.
type Entries struct {
	entries   map[string]string
	untouched []ledger.Setting
	now       map[string]string
	zero      string // any id: git reads only the mode
}

// Wanted decides a snapshot's entries on head; nil if nothing was neutralized. t is the index of the snapshot.
func (st *Settings) Wanted(ctx context.Context, t git.Repo, head string) (*Entries, error) {
	if st.book.Load() != nil || len(st.book.Settings) == 0 {
		return nil, nil
	}
	now, err := st.now(ctx)
	if err != nil {
		return nil, err
	}
	commit, err := st.repos.Tree().Resolve(ctx, head)
	if err != nil {
		return nil, err
	}
	at, err := TreeEntries(ctx, st.repos.Tree(), commit)
	if err != nil {
		return nil, err
	}
	in, err := indexed(ctx, t)
	if err != nil {
		return nil, err
	}
	w := &Entries{entries: map[string]string{}, now: now, zero: strings.Repeat("0", len(st.book.State.BaseSHA))}
	for _, s := range st.book.Settings {
		delete(in, s.Path)
		if now[s.Path] == s.Base {
			w.untouched = append(w.untouched, s)
		} else if w.entries[s.Path] = now[s.Path]; now[s.Path] != "" {
			in[s.Path] = now[s.Path]
		}
	}
	taken := folders(in)
	for _, s := range w.untouched {
		want := s.Branch
		if at[s.Path] != s.Start {
			want = at[s.Path] // the agent committed another version there, or switched to another commit
		}
		if want != "" && (taken[s.Path] || blocked(s.Path, in)) {
			want = "" // the agent replaced it by a directory, or its directory by a file
		}
		w.entries[s.Path] = want
	}
	missing, err := absent(ctx, st.repos.Tree(), w.untouched)
	if err != nil {
		return nil, err
	}
	return w, copyBlobs(ctx, st.repos.Mirror(), st.repos.Tree(), missing)
}

func folders(files map[string]string) map[string]bool {
	dirs := map[string]bool{}
	for name := range files {
		for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

// blocked reports whether a file is at a path where name needs a directory.
func blocked(name string, files map[string]string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if files[dir] != "" {
			return true
		}
	}
	return false
}

// Info returns the input of `update-index --replace --index-info` for these entries.
func (w *Entries) Info() string {
	if w == nil {
		return ""
	}
	var gone, there strings.Builder
	for name, entry := range w.entries {
		if entry != "" {
			there.WriteString(entry + "\t" + name + "\x00")
		}
		gone.WriteString("0 " + w.zero + "\t" + name + "\x00")
	}
	return gone.String() + there.String()
}

// GiveBack restores the committed version in the work tree, for the steps after the agent.
func (st *Settings) GiveBack(ctx context.Context, w *Entries) error {
	if w == nil {
		return nil
	}
	list := slices.DeleteFunc(slices.Clone(w.untouched), func(s ledger.Setting) bool { return w.entries[s.Path] == s.Base })
	if err := st.put(ctx, list, func(s ledger.Setting) (string, bool) { return w.entries[s.Path], w.now[s.Path] != "" }); err != nil {
		return fmt.Errorf("restore the branch's own settings of agents: %w", err)
	}
	st.book.Settings = nil
	return nil
}

// AsBase returns the settings that still have the base's version in the work tree.
func (st *Settings) AsBase(ctx context.Context) (map[string]bool, error) {
	if err := st.book.Load(); err != nil {
		if errors.Is(err, ledger.ErrUnclaimed) {
			err = nil
		}
		return nil, err
	}
	if len(st.book.Settings) == 0 {
		return nil, nil
	}
	now, err := st.now(ctx)
	same := map[string]bool{}
	for _, s := range st.book.Settings {
		same[s.Path] = err == nil && now[s.Path] == s.Base
	}
	return same, err
}

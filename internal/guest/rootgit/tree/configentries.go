package tree

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
)

// configEntries are the settings' entries for a snapshot, by path, and the settings that are unchanged since Neutralize.
type configEntries struct {
	entries   map[string]string
	untouched []remote.ConfigFile
	now       map[string]string
	zero      string // any id: git reads only the mode
}

// entriesFor decides a snapshot's entries on head; nil if nothing was neutralized. t is the index of the snapshot.
func (st *AgentConfig) entriesFor(ctx context.Context, t git.Repo, head string) (*configEntries, error) {
	if st.Ledger.Load() != nil || len(st.Ledger.Settings) == 0 {
		return nil, nil
	}
	now, err := st.now(ctx)
	if err != nil {
		return nil, err
	}
	commit, err := st.Repos.Tree().Resolve(ctx, head)
	if err != nil {
		return nil, err
	}
	at, err := Entries(ctx, st.Repos.Tree(), commit)
	if err != nil {
		return nil, err
	}
	in, err := indexed(ctx, t)
	if err != nil {
		return nil, err
	}
	w := &configEntries{entries: map[string]string{}, now: now, zero: strings.Repeat("0", len(st.Ledger.State.BaseSHA))}
	for _, s := range st.Ledger.Settings {
		delete(in, s.Path)
		if now[s.Path] == s.Base {
			w.untouched = append(w.untouched, s)
		} else if w.entries[s.Path] = now[s.Path]; now[s.Path] != "" {
			in[s.Path] = now[s.Path]
		}
	}
	taken := directories(in)
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
	missing, err := absent(ctx, st.Repos.Tree(), w.untouched)
	if err != nil {
		return nil, err
	}
	return w, copyBlobs(ctx, st.Repos.Mirror(), st.Repos.Tree(), missing)
}

func directories(files map[string]string) map[string]bool {
	dirs := map[string]bool{}
	for name := range files {
		for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

func blocked(name string, files map[string]string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if files[dir] != "" {
			return true
		}
	}
	return false
}

// info returns the input of `update-index --replace --index-info` for these entries.
func (w *configEntries) info() string {
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

// restore restores the committed version in the work tree, for the steps after the agent.
func (st *AgentConfig) restore(ctx context.Context, w *configEntries) error {
	if w == nil {
		return nil
	}
	list := slices.DeleteFunc(slices.Clone(w.untouched), func(s remote.ConfigFile) bool { return w.entries[s.Path] == s.Base })
	if err := st.put(ctx, list, func(s remote.ConfigFile) (string, bool) { return w.entries[s.Path], w.now[s.Path] != "" }); err != nil {
		return fmt.Errorf("restore the branch's own settings of agents: %w", err)
	}
	st.Ledger.Settings = nil
	return nil
}

// unchangedSinceBase returns the settings that still have the base's version in the work tree.
func (st *AgentConfig) unchangedSinceBase(ctx context.Context) (map[string]bool, error) {
	if err := st.Ledger.Load(); err != nil {
		if errors.Is(err, remote.ErrUnclaimed) {
			err = nil
		}
		return nil, err
	}
	if len(st.Ledger.Settings) == 0 {
		return nil, nil
	}
	now, err := st.now(ctx)
	same := map[string]bool{}
	for _, s := range st.Ledger.Settings {
		same[s.Path] = err == nil && now[s.Path] == s.Base
	}
	return same, err
}

package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// wanted is what a snapshot is to have of the settings, by path, and which of them nobody has changed since.
type wanted struct {
	entries   map[string]string
	untouched []setting
	now       map[string]string
	zero      string // any id at all: git looks at the mode alone
}

// settingsWanted decides what a snapshot on head is to have, nil where nothing was neutralized. t is the index that it is made of.
func (p *Publisher) settingsWanted(ctx context.Context, t git.Repo, head string) (*wanted, error) {
	if p.load() != nil || len(p.led.Settings) == 0 {
		return nil, nil
	}
	now, err := p.settingsNow(ctx)
	if err != nil {
		return nil, err
	}
	commit, err := p.tree().Resolve(ctx, head)
	if err != nil {
		return nil, err
	}
	at, err := treeEntries(ctx, p.tree(), commit)
	if err != nil {
		return nil, err
	}
	in, err := indexed(ctx, t)
	if err != nil {
		return nil, err
	}
	w := &wanted{entries: map[string]string{}, now: now, zero: strings.Repeat("0", len(p.led.State.BaseSHA))}
	for _, s := range p.led.Settings {
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
			want = at[s.Path] // the agent committed something else there, or went to another commit
		}
		if want != "" && (taken[s.Path] || blocked(s.Path, in)) {
			want = "" // the agent made a folder of it, or a file of its folder
		}
		w.entries[s.Path] = want
	}
	missing, err := absent(ctx, p.tree(), w.untouched)
	if err != nil {
		return nil, err
	}
	return w, copyBlobs(ctx, p.Mirror(), p.tree(), missing)
}

// folders are the folders of files.
func folders(files map[string]string) map[string]bool {
	dirs := map[string]bool{}
	for name := range files {
		for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

// blocked reports whether a file lies where name needs a folder.
func blocked(name string, files map[string]string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if files[dir] != "" {
			return true
		}
	}
	return false
}

// info is what `update-index --replace --index-info` needs to make it so.
func (w *wanted) info() string {
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

// giveBack makes the work tree have what was committed, for those who come after the agent.
func (p *Publisher) giveBack(ctx context.Context, w *wanted) error {
	if w == nil {
		return nil
	}
	list := slices.DeleteFunc(slices.Clone(w.untouched), func(s setting) bool { return w.entries[s.Path] == s.Base })
	if err := p.put(ctx, list, func(s setting) (string, bool) { return w.entries[s.Path], w.now[s.Path] != "" }); err != nil {
		return fmt.Errorf("give the branch's own settings of agents back: %w", err)
	}
	p.led.Settings = nil
	return nil
}

// asBase are the settings of the work tree that are as we put them there.
func (p *Publisher) asBase(ctx context.Context) (map[string]bool, error) {
	if err := p.load(); err != nil {
		if errors.Is(err, errUnclaimed) {
			err = nil
		}
		return nil, err
	}
	if len(p.led.Settings) == 0 {
		return nil, nil
	}
	now, err := p.settingsNow(ctx)
	same := map[string]bool{}
	for _, s := range p.led.Settings {
		same[s.Path] = err == nil && now[s.Path] == s.Base
	}
	return same, err
}

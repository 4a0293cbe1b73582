package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

// A box or jail has no image of its files. A snapshot of one with a clone is a tag of its branch, and the clone's ignored files, which are
// kept in a directory of the state directory. It has nothing of the files outside of the clone.

// Limits of the ignored files that are kept: of a file or directory that git names, and of all.
const (
	maxIgnoredEntry = 32 << 20
	maxIgnored      = 256 << 20
)

const (
	snapshotDir    = "snapshots" // in the state directory
	snapshotRecord = "snapshot.json"
)

// cloneSnapshot is the record of a snapshot that is no image.
type cloneSnapshot struct {
	Snapshot
	Spec   Spec         `json:"spec"`
	Clones []taggedTree `json:"clones"`
	dir    string
}

// taggedTree is a clone of a snapshot. Its ignored files are in a tar with its index as the name.
type taggedTree struct {
	Repo   string `json:"repo"`
	Commit string `json:"commit"`
}

func (rs *records) snapshotDir(sandbox, name string) string {
	return filepath.Join(rs.state, snapshotDir, sandbox, name)
}

// hasImages reports whether the sandbox's runtime makes images of its files.
func hasImages(in *instance) bool {
	r, _ := in.at()
	_, ok := r.(runtime.Snapshotter)
	return ok
}

// cloneSnapshots lists the snapshots of all sandboxes that are no images, or of one.
func (rs *records) cloneSnapshots(sandbox string) (all []cloneSnapshot) {
	files, _ := filepath.Glob(filepath.Join(rs.snapshotDir(cmp.Or(sandbox, "*"), "*"), snapshotRecord)) // fails only for a malformed pattern
	for _, file := range files {
		if s, err := readCloneSnapshot(filepath.Dir(file)); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// cloneSnapshot finds a snapshot that is no image, or returns fs.ErrNotExist.
func (rs *records) cloneSnapshot(sandbox, name string) (cloneSnapshot, error) {
	if !ValidName(sandbox) || !ValidName(name) || rs.state == "" {
		return cloneSnapshot{}, fs.ErrNotExist
	}
	return readCloneSnapshot(rs.snapshotDir(sandbox, name))
}

func readCloneSnapshot(dir string) (s cloneSnapshot, err error) {
	b, err := os.ReadFile(filepath.Join(dir, snapshotRecord))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	s.dir, s.Omitted = dir, nil
	return s, err
}

// ignoredScript lists the ignored files and directories of the clone $1 with their size in KiB. What a tool builds again is left out, as a
// save leaves it out.
const ignoredScript = `cd "$1" &&
git ls-files -z -o -i --exclude-standard --directory | tr '\0' '\n' | head -n 2000 | while IFS= read -r p; do
	case /$p in */node_modules/* | */__pycache__/* | */.venv/* | */venv/*) continue ;; esac
	k=$(du -sk -- "./$p" 2>/dev/null) && printf '%s %s\n' "${k%%[!0-9]*}" "$p"
done`

// packScript writes the files of the clone $1 that the standard input names as a tar, without the file $2.
const packScript = `cd "$1" && tar -c -f - --exclude="./$2" -T -`

// keepIgnored writes the ignored files of a clone to a tar, and returns its size and what is too large for it.
func (b *Branch) keepIgnored(ctx context.Context, c Clone, file string) (size int64, omitted []string, err error) {
	var list bytes.Buffer
	const maxList = 1 << 20
	if err := b.in.exec(ctx, []string{"sh", "-c", ignoredScript, "sh", c.Dir}, nil, &limitWriter{&list, maxList}); err != nil {
		return 0, nil, err
	}
	var names strings.Builder
	for line := range strings.Lines(list.String()) {
		k, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.ParseInt(k, 10, 64)
		if n <<= 10; err != nil || n > maxIgnoredEntry || size+n > maxIgnored {
			omitted = append(omitted, c.Dir+"/"+name)
			continue
		}
		size += n
		names.WriteString("./" + name + "\n")
	}
	if names.Len() == 0 {
		return 0, omitted, nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	const slack = 2 // directories, and files that grow meanwhile
	argv := []string{"sh", "-c", packScript, "sh", c.Dir, branch.BriefingFile}
	if err := b.in.exec(ctx, argv, strings.NewReader(names.String()), &limitWriter{f, slack * maxIgnored}); err != nil {
		return 0, nil, fmt.Errorf("keep the ignored files of %s: %w", c.Dir, err)
	}
	st, err := f.Stat()
	if err != nil {
		return 0, nil, err
	}
	return st.Size(), omitted, f.Close()
}

// limitWriter fails beyond a number of bytes: a sandbox's output is not trusted.
type limitWriter struct {
	w    io.Writer
	left int64
}

func (l *limitWriter) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, ErrTooLarge
	}
	return l.w.Write(p)
}

// putIgnored restores the ignored files of a clone. Others that are there stay.
func (b *Branch) putIgnored(ctx context.Context, c Clone, file string) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) { // there were none
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := b.in.exec(ctx, []string{"tar", "-x", "-f", "-", "-C", c.Dir}, f, io.Discard); err != nil {
		return fmt.Errorf("restore the ignored files of %s: %w", c.Dir, err)
	}
	return nil
}

func tarOf(dir string, i int) string { return filepath.Join(dir, strconv.Itoa(i)+".tar") }

// keepClones saves the clones, and keeps their ignored files in a new directory beside the snapshots, which remove deletes.
func (b *Branch) keepClones(ctx context.Context) (s cloneSnapshot, remove func(), err error) {
	in := b.in
	if in.c.state == "" {
		return s, nil, errNoState
	}
	saved, err := b.saveAll(ctx)
	if err != nil {
		return s, nil, err
	}
	spec := in.current()
	s = cloneSnapshot{Snapshot: Snapshot{Sandbox: spec.Name, Created: time.Now().UTC()}, Spec: spec}
	for _, u := range saved.Unsaved {
		s.Omitted = append(s.Omitted, CloneDir+"/"+u.Path)
	}
	parent := filepath.Join(in.c.state, snapshotDir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return s, nil, err
	}
	if s.dir, remove, err = copyDir(parent); err != nil {
		return s, nil, err
	}
	for i, c := range b.clones() {
		n, omitted, err := b.keepIgnored(ctx, c, tarOf(s.dir, i))
		if err != nil {
			remove()
			return s, nil, err
		}
		s.Clones = append(s.Clones, taggedTree{Repo: c.Repo})
		s.Bytes, s.Omitted = s.Bytes+n, append(s.Omitted, omitted...)
	}
	return s, remove, nil
}

// tagClones tags the last saves of all clones, and returns their commits. The caller has saved. To replace tags, it adds no commits.
func tagClones(ctx context.Context, b *Branch, name string, replace bool) (commits []string, err error) {
	clones := b.clones()
	for i, c := range clones {
		tag := b.of(c).Tag
		if replace {
			tag = b.of(c).Mark
		}
		commit, err := tag(ctx, name)
		if errors.Is(err, branch.ErrNotPublished) { // the commits are saved
			err = nil
		}
		if errors.Is(err, branch.ErrTagExists) {
			err = fmt.Errorf("sandbox %s: %w: %w", b.in.spec.Name, ErrSnapshotExists, err)
		}
		if err != nil {
			return nil, errors.Join(err, b.in.c.untag(ctx, b.in.spec.Name, name, clones[:i]))
		}
		commits = append(commits, commit)
	}
	return commits, nil
}

// untag removes the tags of clones.
func (rs *records) untag(ctx context.Context, sandbox, name string, clones []Clone) error {
	var errs []error
	for _, c := range clones {
		errs = append(errs, rs.branch(sandbox, c.Repo).Untag(context.WithoutCancel(ctx), name))
	}
	return errors.Join(errs...)
}

// store completes a snapshot with its commits, and moves it to its name, where it replaces another.
func (s *cloneSnapshot) store(rs *records, name string, commits []string) error {
	s.Name, s.Commit = name, commits[0]
	for i := range s.Clones {
		s.Clones[i].Commit = commits[i]
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	to := rs.snapshotDir(s.Sandbox, name)
	old := filepath.Join(s.dir, "old")
	if err := errors.Join(
		statedir.WriteFile(filepath.Join(s.dir, snapshotRecord), append(b, '\n'), 0o600), os.MkdirAll(filepath.Dir(to), 0o700),
	); err != nil {
		return err
	}
	replaces := os.Rename(to, old) == nil // if this fails for another reason than that there is none, so does the next one
	if err := os.Rename(s.dir, to); err != nil {
		if replaces {
			err = errors.Join(err, os.Rename(old, to))
		}
		return err
	}
	s.dir = to
	return os.RemoveAll(filepath.Join(to, "old"))
}

// snapshotClones makes a snapshot of the clones. If it replaces one of that name, it adds no commit to the branches.
func (b *Branch) snapshotClones(ctx context.Context, name string, replace bool) (Snapshot, error) {
	in := b.in
	s, remove, err := b.keepClones(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	defer remove() // if it was not moved
	unlock, err := in.c.lock(ctx, in.spec.Name)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	commits, err := tagClones(ctx, b, name, replace)
	if err != nil {
		return Snapshot{}, err
	}
	if err := s.store(&in.c.records, name, commits); err != nil {
		return Snapshot{}, errors.Join(err, in.c.untag(ctx, in.spec.Name, name, b.clones()))
	}
	in.note(sandboxstore.Event{Event: sandboxstore.EventSnapshot, Detail: name})
	return s.Snapshot, nil
}

// restoreClones replaces the files of the sandbox's clones by those of a snapshot, and commits the difference. It keeps the present ones
// as the snapshot before. If the sandbox was removed, it is recreated.
func (cr *creator) restoreClones(ctx context.Context, s cloneSnapshot, before string) (*Sandbox, error) {
	in, err := cr.find(ctx, s.Sandbox)
	if errors.Is(err, ErrNotFound) {
		return cr.reviveClones(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	if err := in.ready(ctx); err != nil {
		return nil, err
	}
	b := &Branch{in: in}
	saved, err := b.saveAll(ctx)
	if err = cmp.Or(err, saved.lost()); err != nil {
		return nil, fmt.Errorf("sandbox %s stays as it is: %w", s.Sandbox, err)
	}
	if _, err := b.snapshotClones(ctx, before, true); err != nil {
		return nil, err
	}
	return &Sandbox{in}, putClones(ctx, b, s)
}

func (cr *creator) reviveClones(ctx context.Context, s cloneSnapshot) (*Sandbox, error) {
	unlock, err := cr.lock(ctx, s.Sandbox)
	if err != nil {
		return nil, err
	}
	in, err := cr.of(ctx, s.Spec, sandboxstore.Creation{Restore: true, Event: sandboxstore.EventRestored, Detail: s.Name})
	unlock()
	if err != nil {
		return nil, err
	}
	b := &Branch{in: in}
	if _, err := b.saveAll(ctx); err != nil { // a branch that was deleted begins
		return nil, err
	}
	return &Sandbox{in}, putClones(ctx, b, s)
}

// putClones replaces the files of the clones, which are saved, by those of a snapshot.
func putClones(ctx context.Context, b *Branch, s cloneSnapshot) error {
	for i, t := range s.Clones {
		for _, c := range b.clones() {
			if c.Repo != t.Repo {
				continue
			}
			if err := b.of(c).ReplaceFiles(ctx, t.Commit); err != nil {
				return err
			}
			if err := b.putIgnored(ctx, c, tarOf(s.dir, i)); err != nil {
				return err
			}
		}
	}
	_, err := b.save(ctx, CommandRecord{Subject: "Restore snapshot " + s.Name}, true)
	b.in.note(sandboxstore.Event{Event: sandboxstore.EventRestored, Detail: s.Name})
	return err
}

// forkClones creates another sandbox whose branches are copies, with the ignored files. The caller holds the lock of its name.
func (b *Branch) forkClones(ctx context.Context, s Spec) (fork *instance, err error) {
	in := b.in
	kept, remove, err := b.keepClones(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	var copied []*branch.Branch
	defer func() {
		for _, to := range copied {
			if err != nil {
				err = errors.Join(err, to.Delete(context.WithoutCancel(ctx)))
			}
		}
	}()
	for _, c := range s.Clones() {
		to := in.c.branch(s.Name, c.Repo)
		if err := to.Copy(ctx, in.c.branch(in.spec.Name, c.Repo)); err != nil {
			return nil, err
		}
		copied = append(copied, to)
	}
	fork, err = in.c.of(ctx, s, sandboxstore.Creation{Restore: true, Event: sandboxstore.EventForked, Detail: in.spec.Name})
	if err != nil {
		return nil, err
	}
	to := &Branch{in: fork}
	fork.omitted = kept.Omitted
	for i, c := range to.clones() {
		if err := to.putIgnored(ctx, c, tarOf(kept.dir, i)); err != nil {
			fork.omitted = append(fork.omitted, err.Error())
		}
	}
	return fork, nil
}

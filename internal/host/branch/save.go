package branch

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// BriefingFile is written for agents into the work tree. No commit has it.
const BriefingFile = ".claude/sandbox-agent.md"

const (
	// saveTime bounds a save: 20,000 files take a second on a cold disk.
	saveTime = 2 * time.Minute
	// maxPack bounds what a save brings, in bytes, maxLarge a file that git does not know, in KiB.
	maxPack  = 2 << 30
	maxLarge = 10 << 10
	// maxSubject is of a commit's first line, in characters; the note has all of a command. maxName is of a path that a message names.
	maxSubject = 72
	maxName    = 200
	// maxHead bounds a line of what the sandbox says, in bytes, maxLeft the paths that are named as left.
	maxHead = 64 << 10
	maxLeft = 100
)

//go:embed save.sh
var saveScript string

// ExecFunc runs a command in the sandbox as its user, and copies its standard input, which may be nil, and output. Its
// error says what the command said of an exit code other than 0.
type ExecFunc func(ctx context.Context, argv []string, stdin io.Reader, stdout io.Writer) error

// CommandRecord is the command that a save follows.
type CommandRecord struct {
	Command  string        `json:"command"`
	ExitCode int           `json:"exit_code"`
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	// Reason is why the caller ran it.
	Reason string `json:"why,omitempty"`
	// Subject is the commit's first line where no command ran.
	Subject string `json:"-"`
}

// SaveResult is the outcome of a save.
type SaveResult struct {
	// Commit is the new one; "" where nothing has changed.
	Commit string
	// Unsaved are the paths that are not committed.
	Unsaved []Unsaved `json:"Left"`
	// Unmerged are the paths of unresolved conflicts, which are committed with their markers.
	Unmerged []string
	// Notice, if not empty, says how commits made in the sandbox arrived otherwise than one by one.
	Notice string
	// Recreated reports that the clone was recreated since the last save; PreviousRef has the commits of the previous one.
	// Another process may read both from the queue.
	Recreated   bool   `json:"Anew"`
	PreviousRef string `json:"Earlier"`
}

// Unsaved is a path of the clone that no commit has, and why: git does not know it and it is large, it cannot be read,
// git refuses its name; or a submodule has what only the sandbox has.
type Unsaved struct{ Path, Reason string }

// Save commits what has changed in the sandbox's clone at dir since the last save, and notes the command. Saves of one
// repository are one after the other; one may be of several commands that have ended meanwhile, and then each has its
// result.
func (b *Clone) Save(ctx context.Context, title string, ran CommandRecord) (s SaveResult, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, saveTime, fmt.Errorf("the sandbox's files were not saved within %s", saveTime))
	defer cancel()
	what := "save what changed in sandbox " + b.Sandbox
	q, err := b.wait(ran)
	if err != nil {
		return s, fmt.Errorf("%s: %w", what, err)
	}
	done, release, err := q.turn(ctx)
	if err != nil {
		q.leave(ran)
		return s, fmt.Errorf("%s: %w", what, err)
	}
	if done != nil {
		return done.SaveResult, done.err()
	}
	defer release()
	unlock, err := b.lock(ctx)
	if err != nil {
		q.leave(ran)
		return s, err
	}
	defer unlock()
	list, err := q.all()
	if err == nil {
		s, err = b.save(ctx, title, list)
	}
	if err != nil && !errors.Is(err, ErrNotPublished) {
		q.leave(ran)
		return s, fmt.Errorf("%s: %w", what, err)
	}
	if qerr := q.done(list, s, err); qerr != nil {
		return s, fmt.Errorf("%s: %w", what, qerr)
	}
	return s, err
}

// save is one save for all commands of a list. The locks are the caller's.
func (b *Clone) save(ctx context.Context, title string, list []entry) (s SaveResult, err error) {
	clone, err := b.open(ctx)
	if err != nil {
		return s, err
	}
	at := b.at(ctx)
	if at.head == "" {
		found, err := b.bring(ctx, ask{tree: whatOnly})
		if err == nil && found.head == "" {
			err = ErrHalf
		}
		if err == nil {
			s, err = b.begin(ctx, found.clone, title)
		}
		if err != nil {
			return s, err
		}
		at, clone = b.at(ctx), found.clone
	}
	found, err := b.compare(ctx, at)
	if err == nil && found.clone != clone {
		if found.head == "" && found.tree == noFiles {
			err = ErrHalf
		}
		if err == nil {
			s, err = b.begin(ctx, found.clone, title)
		}
		if err == nil {
			at = b.at(ctx)
			found, err = b.compare(ctx, at)
		}
	}
	if err != nil {
		return s, err
	}
	s.Unsaved, s.Unmerged = found.left, found.unmerged
	if err := (&importer{Branch: b.Branch, found: found, at: at}).add(ctx, &s, message(list, found.unmerged)); err != nil {
		return s, err
	}
	head := cmp.Or(s.Commit, at.head)
	if rans := commands(list); len(rans) > 0 {
		if err := b.note(ctx, head, rans); err != nil {
			return s, err
		}
	}
	if s.Commit != "" || !(remote{b.Branch}).shows(ctx, head) { // also what an earlier save was killed before
		err = remote{b.Branch}.publish(ctx)
	}
	b.tidy(ctx)
	return s, err
}

// compare brings what differs from the branch, with the commits made since. Where those are refused, the files come without them.
func (b *Clone) compare(ctx context.Context, at tip) (found, error) {
	a := ask{tree: at.tree, base: at.base, head: at.inside, commits: maxCommits + 1}
	f, err := b.bring(ctx, a)
	if err == nil || f.clone == "" || f.head == at.inside || ctx.Err() != nil {
		return f, err
	}
	a.commits = 0
	again, aerr := b.bring(ctx, a)
	if aerr != nil {
		return f, errors.Join(err, aerr)
	}
	again.partial = text.Runes(text.Clean(err.Error()), maxName)
	return again, nil
}

const (
	// maxPacks and maxLoose are what the repository has before it is packed: each save brings a pack, each note some
	// loose objects, of which maxLoose are in one of 256 folders.
	maxPacks = 50
	maxLoose = 8
)

// tidy packs what saves have brought, where that is much: each object is packed a few times in its life. One that fails
// is for the next save.
func (b *repo) tidy(ctx context.Context) {
	const filesOfPack = 2 // with its index, or more
	packs, _ := os.ReadDir(filepath.Join(b.dir, "objects", "pack"))
	loose, _ := os.ReadDir(filepath.Join(b.dir, "objects", "17"))
	if len(packs) > maxPacks*filesOfPack || len(loose) > maxLoose {
		_ = b.git().Run(ctx, "repack", "--geometric=2", "-d", "-q")
	}
}

// whatOnly in place of a tree asks what the clone is.
const whatOnly = "-"

// ErrHalf means that the process that made a clone was killed: that its files are missing is no change.
var ErrHalf = errors.New("its clone is incomplete: `sandbox-agent reset` recreates it")

// noFiles is the tree without files.
const noFiles = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// message is the text of a commit for all of a list, the first of which names it, and of unresolved conflicts.
func message(list []entry, unmerged []string) string {
	var lines []string
	for _, e := range list {
		if first := line(e.Command); first != "" {
			lines = append(lines, "cmd: "+first)
		} else if first = line(e.Subject); first != "" {
			lines = append(lines, first)
		}
	}
	body := ""
	if len(lines) == 0 {
		lines = []string{"Save"}
	}
	if more := len(lines) - 1; more > 0 {
		body = "\n\n" + strings.Join(lines[:min(len(lines), maxLeft)], "\n")
		and := fmt.Sprintf(" and %d more", more)
		lines[0] = text.Runes(lines[0], maxSubject-len(and)) + and
	}
	if len(unmerged) > 0 {
		body += "\n\nUnresolved conflicts, committed with their markers:\n\n    " + strings.Join(unmerged, "\n    ")
	}
	return text.Runes(lines[0], maxSubject) + body
}

// line is the first line of a text.
func line(s string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return text.Runes(text.Clean(first), maxName)
}

// noteAuthor is whose the notes are: commits say who the user is.
var noteAuthor = []string{
	"GIT_AUTHOR_NAME=sandbox-agent", "GIT_AUTHOR_EMAIL=sandbox-agent@localhost", "GIT_COMMITTER_NAME=sandbox-agent",
	"GIT_COMMITTER_EMAIL=sandbox-agent@localhost",
}

func (b *repo) note(ctx context.Context, commit string, rans []CommandRecord) error {
	r := b.git()
	r.Env = noteAuthor
	for _, ran := range rans {
		line, err := json.Marshal(ran)
		if err != nil {
			return err
		}
		r.Stdin += string(line) + "\n"
	}
	return r.Run(ctx, "notes", "--ref="+notes, "append", "-F", "-", commit)
}

// ask is what the script compares the clone with, and how many commits it may send.
type ask struct {
	tree, base, head string // "" means none
	commits          int
}

// found is what a sandbox says of its clone.
type found struct {
	tree, clone, head string // head is "" if the clone has no commit
	partial           string // why commits did not come along
	left              []Unsaved
	unmerged          []string
	commits           []made
}

// reasons are the codes of the script, for people.
var reasons = map[string]string{
	"closed":     "the sandbox's user may not read it",
	"long":       "its path is longer than 4096 bytes",
	"name":       "git refuses its name",
	"repository": "it is a repository without a commit",
	"large":      "it is larger than 10 MiB and git does not know it: `git add` it in the sandbox",
	"submodule":  "the submodule has changes or commits that only the sandbox has",
	"failed":     "git cannot read it",
}

// bring runs the script in the sandbox and reads the objects that it sends. Nothing that it says is believed but the
// names of trees, whose objects are checked, and what commits say of themselves.
func (b *Clone) bring(ctx context.Context, a ask) (f found, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pr, pw := io.Pipe()
	go func() {
		pw.CloseWithError(b.in(ctx, []string{
			"sh", "-c", saveScript, "sh", b.cloneDir, a.tree, rand.Text(), fmt.Sprint(maxLarge), fmt.Sprint(a.commits),
			cmp.Or(a.base, "-"), cmp.Or(a.head, "-"),
		}, nil, pw))
	}()
	defer pr.Close()
	r := bufio.NewReaderSize(io.LimitReader(pr, maxPack+maxHead), maxHead)
	if err := f.readHead(r, a.tree == whatOnly); err != nil || a.tree == whatOnly {
		return f, err
	}
	if err := f.readLeft(r); err != nil {
		return f, err
	}
	if err := f.readCommits(r, a.commits); err != nil {
		return f, err
	}
	if f.tree == a.tree && len(f.commits) == 0 {
		_, err := io.Copy(io.Discard, r) // to the script's end, which says whether it failed
		return f, err
	}
	trees := []string{f.tree}
	for _, c := range f.commits {
		trees = append(trees, c.tree)
	}
	if err := b.take(ctx, r, heads+b.Sandbox, trees); err != nil {
		return f, err
	}
	return f, b.leaveBriefing(ctx, &f, a.base)
}

// leaveBriefing takes the briefing, which this machine writes into the clone, out of the trees that were found, unless
// the commit base has such a file.
func (b *repo) leaveBriefing(ctx context.Context, f *found, base string) error {
	trees := []*string{&f.tree}
	for i := range f.commits {
		trees = append(trees, &f.commits[i].tree)
	}
	r := b.git()
	r.Stdin = base + ":" + BriefingFile + "\n"
	for _, tree := range trees {
		r.Stdin += *tree + ":" + BriefingFile + "\n"
	}
	out, err := r.Output(ctx, "cat-file", "--batch-check=%(objecttype)")
	if err != nil {
		return err
	}
	has := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(has) != len(trees)+1 || !strings.HasSuffix(has[0], " missing") {
		return nil
	}
	for i, tree := range trees {
		if !strings.HasSuffix(has[i+1], " missing") {
			if *tree, err = b.without(ctx, *tree, BriefingFile); err != nil {
				return fmt.Errorf("leave %s out: %w", BriefingFile, err)
			}
		}
	}
	return nil
}

// without makes the tree that another is without a file.
func (b *repo) without(ctx context.Context, tree, path string) (string, error) {
	r := b.git()
	index := filepath.Join(b.dir, "sandbox-agent-index-"+rand.Text())
	defer os.Remove(index)
	r.Env = []string{"GIT_INDEX_FILE=" + index}
	if err := r.Run(ctx, "read-tree", tree); err != nil {
		return "", err
	}
	remove := r
	remove.Stdin = "0 " + zero(tree) + "\t" + path + "\n"
	if err := remove.Run(ctx, "update-index", "--index-info"); err != nil {
		return "", err
	}
	out, err := r.Output(ctx, "write-tree")
	return strings.TrimSpace(string(out)), err
}

func (f *found) readHead(r *bufio.Reader, what bool) error {
	head, err := r.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("the sandbox does not say what it has: %w", notEOF(err))
	}
	words := strings.Fields(string(head))
	const all = 3
	if len(words) != all || !git.ValidSHA(words[0]) && !what || !cloneName.MatchString(words[1]) {
		return errSilent
	}
	f.tree, f.clone = words[0], words[1]
	if sha, failed := strings.CutPrefix(words[2], "?"); git.ValidSHA(sha) {
		if f.head = sha; failed {
			f.partial = "git in the sandbox does not list them"
		}
	}
	return nil
}

// errSilent means that a sandbox does not say what its clone has.
var errSilent = errors.New("the sandbox does not say what it has")

func (f *found) readLeft(r *bufio.Reader) error {
	more := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("the sandbox does not say what it has: %w", notEOF(err))
		}
		said := strings.TrimSuffix(string(line), "\n")
		if said == "." {
			break
		}
		code, path, _ := strings.Cut(said, "\t")
		path = text.Runes(text.Clean(path), maxName)
		switch {
		case code == "unmerged":
			if len(f.unmerged) < maxLeft {
				f.unmerged = append(f.unmerged, path)
			}
		case slices.ContainsFunc(f.left, func(u Unsaved) bool { return u.Path == path }): // the first reason is enough
		case len(f.left) < maxLeft:
			f.left = append(f.left, Unsaved{path, cmp.Or(reasons[code], text.Runes(text.Clean(code), maxName))})
		default:
			more++
		}
	}
	if more > 0 {
		f.left = append(f.left, Unsaved{fmt.Sprintf("%d more", more), "only the first are named"})
	}
	return nil
}

// cloneName is what rand.Text makes.
var cloneName = regexp.MustCompile(`^[A-Z2-7]{1,40}$`)

// take takes objects in, which are checked, up to the pack's end.
func (b *repo) take(ctx context.Context, r io.Reader, from string, trees []string) error {
	const grace = time.Second
	pack := limited(r)
	defer pack.Close()
	said, err := b.git().Stream(
		ctx, pack, io.Discard, grace, "-c", "transfer.fsckObjects=true", "index-pack", "--stdin", "--fix-thin", "--strict",
		fmt.Sprintf("--max-input-size=%d", int64(maxPack)),
	)
	if err = cmp.Or(pack.Refused(), err); err != nil {
		b.sweep()
		return fmt.Errorf("what it sent cannot be taken, and nothing is until that is gone from the clone: %w: %s", err, strings.TrimSpace(said))
	}
	for _, tree := range trees {
		if kind, err := b.line(ctx, "cat-file", "-t", tree); err != nil || kind != "tree" {
			return errors.New("what it sent is not what it said")
		}
		if err := b.checkDepth(ctx, from, tree); err != nil {
			return fmt.Errorf("what it sent cannot be taken: %w", err)
		}
		from = tree
	}
	return nil
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// aside lists the commits of branches, tags and stashes of the clone $1 that are not checked out, as lines COMMIT TREE
// NAME. Of many tags the newest count: the user's own are older.
const aside = `cd "$1" && [ -e .git ] || exit 0
c=$(git rev-parse --quiet --verify HEAD) || c=
for in in refs/heads refs/tags; do
	git for-each-ref --count=100 --sort=-creatordate \
		--format="%(if)%(*tree)%(then)%(*objectname) %(*tree)%(else)%(objectname) %(tree)%(end) %(refname)" ${c:+--no-merged=$c} $in
done
git log -g -n 100 --format="%H %T %gD %P" refs/stash -- 2>/dev/null | while read -r commit tree name _ _ untracked; do
	echo "$commit $tree $name"
	[ -z "$untracked" ] || echo "$untracked $(git rev-parse "$untracked^{tree}") $name"
done`

// UnsavedRefs are branches, tags and stashes of the sandbox's clone that no save has seen: neither is their last commit
// checked out or in the user's repository, nor has a commit of the branch its files.
func (b *Clone) UnsavedRefs(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	what := "look for branches in the clone of sandbox " + b.Sandbox
	said := text.NewHeadTail(maxHead)
	if err := b.in(ctx, []string{"sh", "-c", aside, "sh", b.cloneDir}, nil, said); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	trees := ""
	for l := range strings.Lines(string(said.Bytes())) {
		f := strings.Fields(l)
		const ref = 2
		if len(f) <= ref || !git.ValidSHA(f[0]) || !git.ValidSHA(f[1]) ||
			localrepo.Git(b.Repo).Run(ctx, "cat-file", "-e", f[0]+"^{commit}") == nil {
			continue
		}
		if trees == "" {
			out, err := b.git().Output(ctx, "log", "--format=%T", heads+b.Sandbox, "--glob="+earlier+b.Sandbox+"/*", "--not", bases+b.Sandbox)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", what, err)
			}
			trees = string(out)
		}
		if name := text.Runes(
			text.Clean(f[ref]), maxName,
		); !strings.Contains(trees, f[1]) && !slices.Contains(names, name) &&
			len(names) < maxLeft {
			names = append(names, name)
		}
	}
	return names, nil
}

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
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// BriefingFile is a file that is written into the working tree for agents. It is never committed.
const BriefingFile = ".claude/sandbox-agent.md"

const (
	saveTime = 2 * time.Minute // bounds a save: 20,000 files take a second on a cold disk
	maxPack  = 2 << 30         // bounds the pack of a save, in bytes, maxLarge an untracked file, in KiB
	maxLarge = 10 << 10
	// maxSubject bounds a commit's first line, maxName a path in a message, in characters. The note has the full command.
	maxSubject = 72
	maxName    = 200
	// maxHead bounds a line of the sandbox's answer, in bytes, maxLeft the paths of SaveResult.Unsaved.
	maxHead = 64 << 10
	maxLeft = 100
)

// saveScript is sent with each save, not installed in the guest, so that it works in older sandboxes, too.
//
//go:embed save.sh
var saveScript string

// ExecFunc runs a command in the sandbox as its user with the given standard input, which may be nil, and output. For an
// exit code other than 0, the error has the command's error output.
type ExecFunc func(ctx context.Context, argv []string, stdin io.Reader, stdout io.Writer) error

// CommandRecord is a command that ran before a save.
type CommandRecord struct {
	Command  string        `json:"command"`
	ExitCode int           `json:"exit_code"`
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	Reason   string        `json:"why,omitempty"` // the caller's reason
	Subject  string        `json:"-"`             // first line of the commit message if no command ran
}

// SaveResult is the outcome of a save.
type SaveResult struct {
	Commit   string    // the new commit; "" if nothing has changed
	Unsaved  []Unsaved `json:"Left"`
	Unmerged []string  // paths with unresolved conflicts, which are committed with their markers
	// Notice, if not empty, says why commits made in the sandbox were not saved one by one.
	Notice string
	// Recreated reports that the clone was recreated since the last save; PreviousRef is the ref of the previous clone's commits.
	Recreated   bool   `json:"Anew"`
	PreviousRef string `json:"Earlier"`
}

// Unsaved is a path of the clone that is not committed, with the reason: untracked and large, unreadable, a name that git
// refuses, or a submodule with own changes or commits.
type Unsaved struct{ Path, Reason string }

// Save commits the changes in the sandbox's clone since the last save, and notes the command. Saves of one repository run
// one after another. One save may serve several waiting commands; each gets its result.
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

// save saves for all entries of a list. The caller holds the locks.
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
		if found.head == "" && found.tree == emptyTree {
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
	if s.Commit != "" || !(remote{b.Branch}).shows(ctx, head) { // also if an earlier save was killed before this
		err = remote{b.Branch}.publish(ctx)
	}
	b.tidy(ctx)
	return s, err
}

// compare imports the difference to the branch and the new commits. If the commits are refused, it imports only the files.
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
	// maxPacks and maxLoose are the limits at which the repository is repacked: each save adds a pack, each note some loose
	// objects. maxLoose is the number in one of 256 directories.
	maxPacks = 50
	maxLoose = 8
)

// tidy repacks the repository when it has many packs or loose objects. After a failure the next save tries again.
func (b *repo) tidy(ctx context.Context) {
	const filesOfPack = 2 // with its index, or more
	packs, _ := os.ReadDir(filepath.Join(b.dir, "objects", "pack"))
	loose, _ := os.ReadDir(filepath.Join(b.dir, "objects", "17"))
	if len(packs) > maxPacks*filesOfPack || len(loose) > maxLoose {
		_ = b.git().Run(ctx, "repack", "--geometric=2", "-d", "-q")
	}
}

// whatOnly in place of a tree asks only for the clone's name and HEAD.
const whatOnly = "-"

// ErrHalf means that the process that made a clone was killed. The clone's missing files are no change then.
var ErrHalf = errors.New("its clone is incomplete: `sandbox-agent reset` recreates it")

// message returns the commit message for the entries of a list; the first one is the subject.
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

// line returns the first line of a text, cleaned and shortened.
func line(s string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return text.Runes(text.Clean(first), maxName)
}

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

// ask is the input of the script: the commits to compare the clone with, and the number of commits that it may send.
type ask struct {
	tree, base, head string // "" means none
	commits          int
}

// found is the script's description of a clone.
type found struct {
	tree, clone, head string // head is "" if the clone has no commit
	partial           string // why the commits were not sent
	left              []Unsaved
	unmerged          []string
	commits           []made
}

// reasons explain the codes of the script.
var reasons = map[string]string{
	"closed":            "not readable for the sandbox's user",
	"long":              "path longer than 4096 bytes",
	"name":              "git refuses its name",
	"repository":        "repository without a commit",
	"large":             "untracked and larger than 10 MiB: `git add` it in the sandbox",
	"submodule":         "in a submodule, whose changes are not committed",
	"submodule-commits": "submodule with commits that exist only in the sandbox",
	"failed":            "git cannot read it",
}

// bring runs the script in the sandbox and imports the objects that it sends. The output is not trusted: only names of
// trees, whose objects are checked, and the authors and messages of commits are used.
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
		_, err := io.Copy(io.Discard, r) // read to the end for the script's error
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

// leaveBriefing removes BriefingFile, which the host writes into the clone, from the imported trees, unless the commit
// base has such a file.
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

// without returns a copy of a tree without the file path.
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
		return fmt.Errorf("read the state of the clone: %w", notEOF(err))
	}
	words := strings.Fields(string(head))
	const all = 3
	if len(words) != all || !git.ValidSHA(words[0]) && !what || !cloneName.MatchString(words[1]) {
		return errSilent
	}
	f.tree, f.clone = words[0], words[1]
	if sha, failed := strings.CutPrefix(words[2], "?"); git.ValidSHA(sha) {
		if f.head = sha; failed {
			f.partial = "git in the sandbox failed to list them"
		}
	}
	return nil
}

// errSilent means that the output of the script in the sandbox is malformed.
var errSilent = errors.New("invalid answer about the state of the clone")

func (f *found) readLeft(r *bufio.Reader) error {
	more := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read the state of the clone: %w", notEOF(err))
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
		case slices.ContainsFunc(f.left, func(u Unsaved) bool { return u.Path == path }): // keep the first reason
		case len(f.left) < maxLeft:
			f.left = append(f.left, Unsaved{path, cmp.Or(reasons[code], text.Runes(text.Clean(code), maxName))})
		default:
			more++
		}
	}
	if more > 0 {
		f.left = append(f.left, Unsaved{fmt.Sprintf("%d more", more), "list shortened"})
	}
	return nil
}

// cloneName matches the output of rand.Text.
var cloneName = lazyregexp.New(`^[A-Z2-7]{1,40}$`)

// take imports a pack and checks its objects.
func (b *repo) take(ctx context.Context, r io.Reader, from string, trees []string) error {
	const grace = time.Second
	pack := git.LimitPack(r, git.PackLimits{Objects: maxObjects, Blob: maxBlob, Object: maxObject, Total: maxTotal})
	defer pack.Close()
	said, err := b.git().Stream(
		ctx, pack, io.Discard, grace, "-c", "transfer.fsckObjects=true", "index-pack", "--stdin", "--fix-thin", "--strict",
		fmt.Sprintf("--max-input-size=%d", int64(maxPack)),
	)
	if err = cmp.Or(pack.Refused(), err); err != nil {
		b.sweep()
		return fmt.Errorf("pack refused; saves fail until the offending files or commits are removed from the clone: %w: %s", err,
			strings.TrimSpace(said))
	}
	for _, tree := range trees {
		if kind, err := b.line(ctx, "cat-file", "-t", tree); err != nil || kind != "tree" {
			return fmt.Errorf("pack refused: no tree %s in it", tree)
		}
		if err := b.checkDepth(ctx, from, tree); err != nil {
			return fmt.Errorf("pack refused: %w", err)
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
// NAME. Only the newest tags are read: the user's own are older.
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

// UnsavedRefs returns branches, tags and stashes of the sandbox's clone that no save has: their last commit is neither
// checked out nor in the user's repository, and no commit of the branch has the same files.
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
		name := text.Runes(text.Clean(f[ref]), maxName)
		if !strings.Contains(trees, f[1]) && !slices.Contains(names, name) && len(names) < maxLeft {
			names = append(names, name)
		}
	}
	return names, nil
}

package branch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Commits made in a sandbox are recreated here with the same tree, message and author, with parents of this branch, and
// with the user as committer. The commit objects of the sandbox are not imported. If the commits follow the branch's last
// commit, they continue the branch; otherwise the save's own commit merges both, so that the branch only moves forward.

const (
	maxCommits = 100 // bounds the commits that a save imports one by one
	// maxRaw bounds the bytes read of a commit, maxParents its parents, maxIdent the characters of names and addresses,
	// and maxMessage those of messages.
	maxRaw     = 64 << 10
	maxParents = 16
	maxIdent   = 100
	maxMessage = 16 << 10
	maxRecord  = 1000 // bounds the record commits that load reads
)

// made is a commit made in a sandbox, as the sandbox describes it.
type made struct {
	sha, tree string
	parents   []string
	author    []string // environment for git
	message   string
}

// readCommits reads commits as `git cat-file --batch` prints them, up to a line with a dot.
func (f *found) readCommits(r *bufio.Reader, most int) error {
	for {
		line, err := r.ReadSlice('\n') // bounded by the reader's buffer
		if err != nil {
			return fmt.Errorf("read commits: %w", notEOF(err))
		}
		if string(line) == ".\n" {
			return nil
		}
		words := strings.Fields(string(line))
		const all = 3
		if len(words) != all || !git.ValidSHA(words[0]) || words[1] != "commit" || len(f.commits) == most {
			return errSilent
		}
		size, err := strconv.ParseUint(words[2], 10, 40)
		if err != nil {
			return errSilent
		}
		raw := make([]byte, min(size, maxRaw))
		if _, err := io.ReadFull(r, raw); err != nil {
			return fmt.Errorf("read commits: %w", notEOF(err))
		}
		if _, err := io.CopyN(io.Discard, r, int64(size)-int64(len(raw))+1); err != nil {
			return fmt.Errorf("read commits: %w", notEOF(err))
		}
		c, err := parse(words[0], raw)
		if err != nil {
			return err
		}
		f.commits = append(f.commits, c)
	}
}

// parse reads a commit object, whose end may be cut off.
func parse(sha string, raw []byte) (made, error) {
	c := made{sha: sha}
	head, message, _ := bytes.Cut(raw, []byte("\n\n"))
	latin := false
	var author string
	for line := range bytes.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch key {
		case "tree":
			c.tree = cmp.Or(c.tree, value)
		case "parent":
			if git.ValidSHA(value) && len(c.parents) < maxParents {
				c.parents = append(c.parents, value)
			}
		case "author":
			author = value
		case "encoding":
			latin = latin1.MatchString(value)
		}
	}
	if !git.ValidSHA(c.tree) {
		return c, errSilent
	}
	c.message = cmp.Or(text.Runes(strings.TrimSpace(text.Clean(strings.ToValidUTF8(decoded(string(message), latin), "\uFFFD"))), maxMessage),
		"Commit without a message")
	c.author = authored(decoded(author, latin))
	return c, nil
}

var latin1 = lazyregexp.New(`(?i)^(iso-?8859-1|latin-?1)$`)

// decoded converts Latin-1 to UTF-8, and returns any other text unchanged.
func decoded(s string, latin bool) string {
	if !latin || utf8.ValidString(s) {
		return s
	}
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

var ident = lazyregexp.New(`^(.*?) ?<([^<>]*)> (\d{1,10}) ([+-]\d{4})$`)

// authored returns the environment for an author in the form "NAME <ADDRESS> SECONDS ZONE". Without the values that git
// would refuse, git uses the committer's.
func authored(s string) []string {
	m := ident.FindStringSubmatch(strings.ToValidUTF8(s, "\uFFFD"))
	if m == nil {
		return nil
	}
	clean := func(s string) string {
		s = strings.NewReplacer("\n", " ", "<", "", ">", "").Replace(text.Clean(s))
		return text.Runes(strings.TrimSpace(s), maxIdent)
	}
	name, email := clean(m[1]), clean(m[2])
	if strings.Trim(name, " .,:;\"\\'") == "" { // git refuses such a name
		name = "unknown"
	}
	env := []string{"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + email}
	seconds, err := strconv.ParseInt(m[3], 10, 64)
	if zone := m[4]; err == nil && time.Unix(seconds, 0).Before(lastDate) && zone[1:] <= "1400" && zone[3:] < "60" {
		env = append(env, fmt.Sprintf("GIT_AUTHOR_DATE=@%d %s", seconds, zone))
	}
	return env
}

// lastDate is the exclusive limit of dates that git accepts.
var lastDate = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

// record maps commits of the clone to commits of the branch, and has the clone's HEAD at the last save. It is stored as
// the messages of a chain of commits on a ref of its own, one for each save.
type record struct {
	head   string
	became [][2]string // a commit of the clone, and the branch's
	loaded int         // length of became that is stored already
}

func (b *Branch) load(ctx context.Context, at tip) *record {
	r := &record{head: at.inside}
	if at.record == "" {
		return r
	}
	// An unreadable record counts as empty.
	out, _ := b.line(ctx, "log", "--reverse", fmt.Sprintf("--max-count=%d", maxRecord), "--format=%b", at.record)
	for l := range strings.Lines(out) {
		if f := strings.Fields(l); len(f) == 2 && git.ValidSHA(f[0]) && git.ValidSHA(f[1]) {
			r.add(f[0], f[1])
		}
	}
	r.loaded = len(r.became)
	return r
}

func (r *record) add(sha, ours string) { r.became = append(r.became, [2]string{sha, ours}) }

func (r *record) of(sha string) string {
	for _, p := range slices.Backward(r.became) {
		if p[0] == sha {
			return p[1]
		}
	}
	return ""
}

// importer adds the commits and files of a clone to a branch.
type importer struct {
	*Branch
	record *record
	found  found
	at     tip
}

// add adds the commits made in the sandbox, and a commit of the files that differ from them.
func (im *importer) add(ctx context.Context, s *SaveResult, message string) error {
	f, at := im.found, im.at
	im.record = &record{}
	if f.head != at.inside {
		im.record = im.load(ctx, at)
	}
	im.record.head = f.head
	joined, next, err := im.replay(ctx)
	if err != nil {
		return err
	}
	s.Notice = notice(f)
	head := at.head
	switch {
	case next != nil && joined && next.tree == f.tree:
		head = next.sha
	case next != nil && joined:
		head, err = im.commitTree(ctx, im.identity(ctx), f.tree, message, next.sha)
	case next != nil:
		head, err = im.commitTree(ctx, im.identity(ctx), f.tree, message, at.head, next.sha)
	case f.tree != at.tree:
		head, err = im.commitTree(ctx, im.identity(ctx), f.tree, message, at.head)
	}
	if err != nil {
		return err
	}
	if f.head != at.inside && im.clean(ctx, next) { // the next commit made there follows this one
		im.record.add(f.head, head)
	}
	if head != at.head {
		s.Commit = head
	}
	switch {
	case f.head != at.inside:
		return im.move(ctx, at, s.Commit, im.record)
	case head != at.head:
		return im.move(ctx, at, s.Commit, nil) // the record stays
	}
	return nil
}

// clean reports whether the clone's files are those of its HEAD, as far as this machine knows that commit.
func (im *importer) clean(ctx context.Context, next *made) bool {
	if next != nil {
		return next.tree == im.found.tree
	}
	ours := im.record.of(im.found.head)
	if ours == "" {
		return false
	}
	tree, err := im.line(ctx, "rev-parse", ours+"^{tree}")
	return err == nil && tree == im.found.tree
}

// notice says why commits were not imported one by one.
func notice(f found) string {
	switch {
	case f.partial != "":
		return "commits made in the sandbox are saved as one: " + f.partial
	case len(f.commits) > maxCommits:
		return fmt.Sprintf("only the last %d commits made in the sandbox are saved one by one; the earlier ones are one commit", maxCommits)
	}
	return ""
}

// replay recreates the commits and records them. next is the one of the clone's HEAD, if any; joined reports that it
// follows the branch's last commit.
func (im *importer) replay(ctx context.Context) (joined bool, next *made, err error) {
	f, at, r := im.found, im.at, im.record
	if len(f.commits) == 0 {
		return false, nil, nil
	}
	theirs := im.known(ctx, f.commits)
	follows := map[string]bool{at.head: true} // the branch's last commit and the commits after it
	committer := im.identity(ctx)
	for i, c := range f.commits {
		if theirs[c.sha] || r.of(c.sha) != "" {
			continue
		}
		if i == 0 && len(f.commits) > maxCommits {
			c.message, c.author = "Save earlier commits made in the sandbox as one", nil
		}
		parents, after := im.parents(ctx, c, follows)
		sha, err := im.commitTree(ctx, append(slices.Clone(committer), c.author...), c.tree, c.message, parents...)
		if err != nil {
			return false, nil, err
		}
		follows[sha] = after
		r.add(c.sha, sha)
		if c.sha == f.head {
			joined, next = after, &made{sha: sha, tree: c.tree}
		}
	}
	return joined, next, nil
}

// parents returns the parents of a recreated commit, and reports whether it follows the branch's last commit. A parent
// outside of the branch is left out; the commit then contains its changes.
func (im *importer) parents(ctx context.Context, c made, follows map[string]bool) (list []string, after bool) {
	head := im.at.head
	for _, p := range c.parents {
		ours := im.record.of(p)
		if ours == "" && im.git().Run(ctx, "merge-base", "--is-ancestor", p, head) == nil {
			ours = p
		}
		if ours != "" && !slices.Contains(list, ours) {
			list, after = append(list, ours), after || follows[ours]
		}
	}
	if len(list) == 0 {
		return []string{head}, true
	}
	return list, after
}

// known returns the commits that this machine has: they were not made in the sandbox.
func (b *repo) known(ctx context.Context, all []made) map[string]bool {
	var names strings.Builder
	for _, c := range all {
		names.WriteString(c.sha + "\n")
	}
	known := map[string]bool{}
	for _, r := range []git.Repo{b.git(), localrepo.Git(b.Repo)} {
		r.Stdin = names.String()
		out, _ := r.Output(ctx, "cat-file", "--batch-check=%(objectname) %(objecttype)") // empty for a missing repository
		for l := range strings.Lines(string(out)) {
			if sha, ok := strings.CutSuffix(strings.TrimSpace(l), " commit"); ok {
				known[sha] = true
			}
		}
	}
	return known
}

// identity returns the environment for the user's name and address from their repository.
func (b *repo) identity(ctx context.Context) []string {
	name, email := localrepo.Identity(ctx, b.Repo, b.Author)
	return []string{"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + email, "GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + email}
}

// commitTree creates a commit without a ref.
func (b *repo) commitTree(ctx context.Context, env []string, tree, message string, parents ...string) (string, error) {
	r := b.git()
	r.Env, r.Stdin = env, message+"\n"
	args := []string{"commit-tree", "-F", "-"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	out, err := r.Output(ctx, append(args, tree)...)
	return strings.TrimSpace(string(out)), err
}

// zero is the object id of a ref that does not exist.
func zero(sha string) string { return strings.Repeat("0", len(sha)) }

// move updates the branch, unless head is "", and its record, unless r is nil, in one transaction.
func (b *Branch) move(ctx context.Context, at tip, head string, r *record) error {
	g := b.git()
	if head != "" {
		g.Stdin += "update " + heads + b.Sandbox + " " + head + " " + cmp.Or(at.head, zero(head)) + "\n"
	}
	if r != nil {
		lines := []string{cmp.Or(r.head, "-"), ""}
		for _, p := range r.became[r.loaded:] {
			lines = append(lines, p[0]+" "+p[1])
		}
		var parents []string
		if at.record != "" {
			parents = []string{at.record}
		}
		sha, err := b.commitTree(ctx, noteAuthor, cmp.Or(head, at.head)+"^{tree}", strings.Join(lines, "\n"), parents...)
		if err != nil {
			return err
		}
		g.Stdin += "update " + inside + b.Sandbox + " " + sha + " " + cmp.Or(at.record, zero(sha)) + "\n"
	}
	return g.Run(ctx, "update-ref", "--stdin")
}

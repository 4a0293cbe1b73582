// Package salvage copies commits and files out of a stopped, untrusted box. It copies only git objects, recomputes their
// ids and reads no git settings.
package salvage

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/archive"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Limits of one operation.
const (
	Limit      = 10 * time.Minute // of the whole operation: a gigabyte takes a minute on a slow disk
	maxBytes   = 8 << 30          // so that a box cannot fill this machine's disk
	maxEntries = 500_000
	maxRefs    = 4 << 20 // bytes of a file of refs
)

// ErrNoWork is returned if the box has no commit that is unknown elsewhere.
var ErrNoWork = errors.New("the sandbox has no new work")

// Source reads files of a stopped box.
type Source interface {
	CopyOut(ctx context.Context, id, path string) (io.ReadCloser, error)
}

// Work describes the commits to copy.
type Work struct {
	Dir    string   // the work tree; "" means workorder.Workspace
	Branch string   // the task's branch
	Head   string   // the expected commit; "" means the one in the box's repository
	Base   string   // the branch that the box began with; "" if unknown
	Known  []string // commits that are known elsewhere: they and their ancestors are omitted
}

// Commits writes the commits of a stopped box as a bundle and returns the last of them.
func Commits(ctx context.Context, from Source, box string, w Work, bundle string) (head string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("it took longer than %s", Limit))
	defer cancel()
	defer func() {
		if err != nil && !errors.Is(err, ErrNoWork) {
			err = fmt.Errorf("copy the commits out of the stopped sandbox: %w", err)
		}
	}()
	// On the same disk as the bundle.
	dir, err := os.MkdirTemp(filepath.Dir(bundle), ".salvage-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	repo := git.Repo{Dir: dir, Bare: true, Untrusted: true}
	s := &store{refs: map[string]string{}, left: maxBytes, entries: maxEntries}
	r, err := from.CopyOut(ctx, box, path.Join(cmp.Or(w.Dir, workorder.Workspace), ".git"))
	if errors.Is(err, runtime.ErrNotFound) {
		return "", ErrNoWork
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	if err := s.open(dir); err != nil {
		return "", err
	}
	if err := errors.Join(s.take(r), s.root.Close()); err != nil {
		return "", err
	}
	known := w.Known
	head = w.Head
	if head == "" {
		head = s.head(w.Branch)
	}
	if !git.ValidSHA(head) {
		return "", ErrNoWork
	}
	if w.Base != "" && w.Head == "" {
		known = append(known, s.refs["refs/remotes/origin/"+w.Base]) // keeps the bundle small
	}
	if err := s.index(ctx, repo, len(head)); err != nil {
		return "", err
	}
	// A box that was killed while it wrote its bundle left git's lock beside it: use a directory of our own.
	made := filepath.Join(dir, filepath.Base(bundle))
	if err := write(ctx, repo, workorder.BranchRef(w.Branch), head, known, made); err != nil {
		return head, err
	}
	if err := os.Remove(bundle + ".lock"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return head, err
	}
	return head, os.Rename(made, bundle)
}

// write creates the bundle of head without the known commits.
func write(ctx context.Context, repo git.Repo, ref, head string, known []string, bundle string) error {
	list := []string{head}
	for _, sha := range known {
		if git.ValidSHA(sha) && repo.Run(ctx, "cat-file", "-e", sha+"^{commit}") == nil {
			list = append(list, "^"+sha)
		}
	}
	out, err := repo.Output(ctx, append([]string{"rev-list", "--max-count=1"}, append(list, "--")...)...)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(out))) == 0 {
		return ErrNoWork
	}
	if err := repo.Run(ctx, "update-ref", ref, head); err != nil {
		return err
	}
	return repo.Run(ctx, append([]string{"bundle", "create", "--quiet", bundle, ref}, list[1:]...)...)
}

var (
	loose = lazyregexp.New(`^objects/[0-9a-f]{2}/[0-9a-f]{38}([0-9a-f]{24})?$`)
	packs = lazyregexp.New(`^objects/pack/pack-[0-9a-f]{40}([0-9a-f]{24})?\.pack$`)
	heads = lazyregexp.New(`^(HEAD|refs/(heads|remotes)/.+)$`)
)

// store is the repository that receives the objects.
type store struct {
	root    *os.Root
	refs    map[string]string
	packs   []string
	left    int64
	entries int
}

func (s *store) open(dir string) (err error) {
	s.root, err = os.OpenRoot(dir)
	return err
}

// take reads the archive of a .git directory.
func (s *store) take(r io.Reader) error {
	return archive.Each(r, func(h *tar.Header, content io.Reader) (err error) {
		if s.entries--; s.entries < 0 {
			return fmt.Errorf("its repository has more than %d files", maxEntries)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		switch {
		case h.Typeflag != tar.TypeReg:
		case loose.MatchString(name), packs.MatchString(name):
			err = s.object(name, h.Size, content)
		case heads.MatchString(name), name == "packed-refs":
			err = s.ref(name, content)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

func (s *store) object(name string, size int64, r io.Reader) error {
	if s.left -= size; s.left < 0 {
		return fmt.Errorf("its repository has more than %d GiB", int64(maxBytes)>>30)
	}
	if packs.MatchString(name) {
		name = path.Base(name) // outside of git's directories until the pack is indexed
		s.packs = append(s.packs, name)
	} else if err := s.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

func (s *store) ref(name string, r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, maxRefs))
	if err != nil {
		return err
	}
	if name != "packed-refs" {
		s.refs[name] = strings.TrimSpace(string(b))
		return nil
	}
	for line := range strings.Lines(string(b)) {
		sha, ref, ok := strings.Cut(strings.TrimSpace(line), " ")
		if _, later := s.refs[ref]; ok && !later && git.ValidSHA(sha) {
			s.refs[ref] = sha
		}
	}
	return nil
}

// head returns the commit of the task's branch, or of HEAD if the branch is missing.
func (s *store) head(branch string) string {
	if sha := s.refs[workorder.BranchRef(branch)]; sha != "" {
		return sha
	}
	at := s.refs["HEAD"]
	if ref, symbolic := strings.CutPrefix(at, "ref: "); symbolic {
		return s.refs[ref]
	}
	return at
}

// index makes the copied objects a repository. It does not trust their names: packs get a new index, and the reader of
// the bundle recomputes all ids.
func (s *store) index(ctx context.Context, repo git.Repo, idLength int) error {
	format := "sha1"
	if idLength == 64 {
		format = "sha256"
	}
	if err := repo.Run(ctx, "init", "--quiet", "--bare", "--template=", "--object-format="+format, "--", repo.Dir); err != nil {
		return err
	}
	for _, name := range s.packs {
		from := filepath.Join(repo.Dir, name)
		to := filepath.Join(repo.Dir, "objects/pack", name)
		if err := os.Rename(from, to); err != nil {
			return err
		}
		if err := repo.Run(ctx, "index-pack", to); err != nil {
			return err
		}
	}
	return nil
}

// maxFiles bounds the copied working tree, in bytes.
const maxFiles = 2 << 30

// Files writes the working tree of a stopped box, without .git, as a compressed tar file.
func Files(ctx context.Context, from Source, box, archive string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("it took longer than %s", Limit))
	defer cancel()
	defer func() {
		if err != nil && !errors.Is(err, ErrNoWork) {
			err = errors.Join(fmt.Errorf("copy the files out of the stopped sandbox: %w", err), os.Remove(archive))
		}
	}()
	r, err := from.CopyOut(ctx, box, workorder.Workspace)
	if errors.Is(err, runtime.ErrNotFound) {
		return ErrNoWork
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(archive, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z := gzip.NewWriter(f)
	if err := filesOf(r, tar.NewWriter(z)); err != nil {
		return err
	}
	return z.Close()
}

// filesOf copies plain files, directories and links, with paths relative to the working tree.
func filesOf(from io.Reader, to *tar.Writer) error {
	left, entries := int64(maxFiles), maxEntries
	err := archive.Each(from, func(h *tar.Header, content io.Reader) error {
		_, name, _ := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/")
		if name == "" || name == ".git" || strings.HasPrefix(name, ".git/") {
			return nil
		}
		entries, left = entries-1, left-h.Size
		if entries < 0 || left < 0 {
			return fmt.Errorf("the working tree has more than %d GiB or %d files", int64(maxFiles)>>30, maxEntries)
		}
		link := h.Linkname
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
		case tar.TypeLink: // another name of an earlier file
			_, target, _ := strings.Cut(link, "/")
			if target == "" || strings.HasPrefix(target, ".git/") || strings.Contains("/"+target+"/", "/../") {
				return nil
			}
			link = "./" + target
		default:
			return nil
		}
		kept := &tar.Header{Typeflag: h.Typeflag, Name: "./" + name, Linkname: link, Size: h.Size, Mode: h.Mode & 0o777, ModTime: h.ModTime}
		if err := to.WriteHeader(kept); err != nil {
			return err
		}
		_, err := io.Copy(to, content)
		return err
	})
	if err != nil {
		return err
	}
	return to.Close()
}

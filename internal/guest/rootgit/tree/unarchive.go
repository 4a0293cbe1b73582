package tree

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// unarchiveTime bounds unpacking; archiveLimit bounds it, too.
const unarchiveTime = 2 * time.Minute

// Unarchive extracts an archive of Archive into the work tree as the agent's user, without any .git. Call it after
// Checkout, and before setup, whose files they would count as otherwise. An unreadable archive is a warning. It reports whether any
// file may have been extracted.
func (c *Committer) Unarchive(ctx context.Context, path string) (unpacked bool) {
	ctx, cancel := context.WithTimeout(ctx, unarchiveTime)
	defer cancel()
	err := c.unpack(ctx, path)
	if err != nil {
		c.Repos.Warn("the files that an earlier attempt could not commit are missing, at least in part, from the work tree: %v", err)
	} else {
		c.Repos.Warn("files that an earlier attempt could not commit are in the work tree again")
	}
	return !errors.Is(err, fs.ErrNotExist)
}

func (c *Committer) unpack(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, w := io.Pipe()
	defer r.Close()
	tail := proc.NewTail(1 << 10)
	filtered := make(chan error, 1)
	go func() {
		names, err := c.owned(f, w)
		err = errors.Join(err, os.WriteFile(unpackedFile(c.Tree), []byte(strings.Join(names, "\x00")), 0o600))
		_ = w.CloseWithError(err) // nil means the end
		filtered <- err
	}()
	err = proc.Run(ctx, proc.Spec{
		Argv: []string{"tar", "--extract", "--no-same-owner", "--warning=no-timestamp"},
		Dir:  c.Repos.Workspace, User: c.Repos.User, Stdin: r, Stderr: tail,
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"},
	})
	_ = r.Close() // in case tar did not read everything
	if ferr := <-filtered; ferr != nil && !errors.Is(ferr, io.ErrClosedPipe) {
		err = errors.Join(ferr, err)
	}
	if err != nil {
		return errors.Join(err, errors.New(strings.TrimSpace(tail.String())))
	}
	return nil
}

// unpackedFile is the list of files that came from an archive.
func unpackedFile(t *Tree) string { return filepath.Join(t.Repos.Dir, "unpacked") }

// unpackedPaths lists files that came from an archive: they are the agent's work, as restored ones are.
func unpackedPaths(t *Tree) ([]string, error) {
	b, err := os.ReadFile(unpackedFile(t))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil, nil
	}
	return strings.Split(string(b), "\x00"), err
}

// owned copies a compressed archive, uncompressed, and returns the names of the files. It leaves out entries named .git or
// below one, and those in the place of a further repository. tar's own option is too slow.
func (c *Committer) owned(from io.Reader, to io.Writer) (names []string, err error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	others := map[string]bool{}
	in, out := tar.NewReader(z), tar.NewWriter(to)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names, out.Close()
		} else if err != nil {
			return names, fmt.Errorf("read archive: %w", err)
		}
		if name := c.further(h.Name); name != "" {
			if !others[name] {
				c.Repos.Warn("files of %s that an earlier attempt could not commit stay in its result: %s", name, workorder.ArchiveFile)
			}
			others[name] = true
			continue
		}
		if inGit(h.Name) || h.Typeflag == tar.TypeLink && inGit(h.Linkname) {
			continue
		}
		if h.Typeflag != tar.TypeDir {
			names = append(names, strings.TrimPrefix(h.Name, "./"))
		}
		if err := out.WriteHeader(h); err != nil {
			return names, fmt.Errorf("copy %q: %w", h.Name, err)
		}
		if _, err := io.Copy(out, in); err != nil {
			return names, fmt.Errorf("copy %q: %w", h.Name, err)
		}
	}
}

// further returns the further repository that a path belongs to; "" if there is none.
func (c *Committer) further(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "./"), "/")
	if !slices.ContainsFunc(c.Repos.Order.Repos, func(r workorder.OrderRepo) bool { return r.Name == first }) {
		return ""
	}
	return first
}

func inGit(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".git" {
			return true
		}
	}
	return false
}

package credentials

import (
	"context"
	"io"
	"time"

	"github.com/go-git/go-git/v5/storage"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// allocLimit bounds each piece of memory that git takes for an object: a small pack may hold objects of many gigabytes. Larger files
// are passed through (core.bigFileThreshold), and only a chain of differences needs as much as it makes.
const allocLimit = "256m"

// bare is a repository of ours with what a remote sent.
func bare(dir string) git.Repo {
	return git.Repo{Dir: dir, Bare: true, Env: []string{"GIT_ALLOC_LIMIT=" + allocLimit}}
}

// unpackGrace is what git has to remove its files once it is stopped.
const unpackGrace = 2 * time.Second

// unpacked is a storage whose packs git takes: the library holds each object in memory, whatever its size.
type unpacked struct {
	storage.Storer
	ctx context.Context // of the one fetch: the library's interface has no place for it
	dir string
}

// PackfileWriter implements storer.PackfileWriter.
func (s *unpacked) PackfileWriter() (io.WriteCloser, error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := bare(s.dir).Stream(s.ctx, r, io.Discard, unpackGrace, "-c", "pack.threads=1", "index-pack", "--stdin")
		r.CloseWithError(err) // what is written from now on fails with it
		done <- err
	}()
	return &packWriter{w, done}, nil
}

type packWriter struct {
	*io.PipeWriter
	done chan error
}

// Close waits until the pack is in the repository.
func (w *packWriter) Close() error {
	_ = w.PipeWriter.Close() // never fails
	return <-w.done
}

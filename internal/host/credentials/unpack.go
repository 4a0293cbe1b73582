package credentials

import (
	"context"
	"io"
	"time"

	"github.com/go-git/go-git/v5/storage"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// bare is a temporary repository with the objects that a remote sent.
func bare(dir string) git.Repo { return git.Repo{Dir: dir, Bare: true, Untrusted: true} }

// packLimits bound what a remote sends: a small pack may hold objects of many gigabytes.
var packLimits = git.PackLimits{Objects: 5_000_000, Blob: 4 << 30, Object: 256 << 20, Total: 64 << 30}

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
		limited := git.LimitPack(r, packLimits)
		_, err := bare(s.dir).Stream(s.ctx, limited, io.Discard, unpackGrace, "index-pack", "--stdin")
		_ = limited.Close()   // never fails
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

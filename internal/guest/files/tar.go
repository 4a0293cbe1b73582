package files

import (
	"net/http"
	"os"
	"path"

	"github.com/sandbox-agent/sandbox-agent/internal/archive"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// began records whether an answer has begun.
type began struct {
	http.ResponseWriter
	yes bool
}

func (b *began) Write(p []byte) (int, error) {
	b.yes = true
	return b.ResponseWriter.Write(p)
}

func (h handler) pack(w http.ResponseWriter, r *http.Request, name string) error {
	top := path.Base(name)
	if top == ".." || top == "/" {
		top = "."
	}
	w.Header().Set("Trailer", wire.TrailerEnd)
	w.Header().Set("Content-Type", "application/x-tar")
	out := &began{ResponseWriter: w}
	sum, err := archive.Pack(r.Context(), out, name, top)
	if err != nil && !out.yes {
		w.Header().Del("Trailer")
		return err
	}
	end(w, wire.TransferSummary{Files: sum.Files, Bytes: sum.Bytes, Skipped: sum.Left}, err)
	return nil
}

func (h handler) unpack(w http.ResponseWriter, r *http.Request, name string) error {
	if yes(r, wire.QueryParents) {
		if err := os.MkdirAll(name, 0o777); err != nil {
			return err
		}
	}
	sum, err := archive.Unpack(name, r.Body, archive.Options{Exact: true})
	if err != nil {
		return err
	}
	return wirehttp.Document(w, wire.TransferSummary{Files: sum.Files, Bytes: sum.Bytes, Skipped: sum.Left})
}

package files

import (
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/pkg/sftp"
)

// sftp speaks SFTP over the request's two bodies, until the client goes away. Relative paths are below the sandbox's folder.
func (h handler) sftp(w http.ResponseWriter, r *http.Request, _ string) error {
	// The package's own way to a folder would make absolute what a link says. Nothing else here has relative paths.
	if err := os.Chdir(h.dir); err != nil {
		return err
	}
	rc := http.NewResponseController(w)
	if err := rc.Flush(); err != nil {
		return err
	}
	s, err := sftp.NewServer(duplex{r.Body, w, rc})
	if err != nil {
		return err
	}
	if err := s.Serve(); err != nil && !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) // the answer has begun: its end must not look like a good one
	}
	return nil
}

// duplex is a request's body with its answer, of which each write is sent at once.
type duplex struct {
	io.ReadCloser
	w  io.Writer
	rc *http.ResponseController
}

func (d duplex) Write(p []byte) (int, error) {
	n, err := d.w.Write(p)
	if err == nil {
		err = d.rc.Flush()
	}
	return n, err
}

package files

import (
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/pkg/sftp"
)

// sftp serves SFTP over the request's two bodies, until the client disconnects.
func (h handler) sftp(w http.ResponseWriter, r *http.Request, _ string) error {
	// The package's working directory option would make link targets absolute.
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
		panic(http.ErrAbortHandler) // the answer has begun: it must not look complete
	}
	return nil
}

// duplex combines a request's body with its answer and flushes each write.
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

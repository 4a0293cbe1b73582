package innerengine

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/redact"
)

// KeepLogs copies the logs that the engine's programs write themselves, with secrets redacted. Missing logs
// are not an error.
func KeepLogs(from, to string, mask *redact.Set) error {
	var errs []error
	for _, name := range []string{"dockerd.log", "containerd.log"} {
		if err := keepLog(filepath.Join(from, name), filepath.Join(to, name), mask); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func keepLog(from, to string, mask *redact.Set) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	clean := mask.Writer(w)
	_, err = io.Copy(clean, r)
	return errors.Join(err, clean.Close(), w.Close())
}

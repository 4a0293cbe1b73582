package launch

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxUnpack bounds what is copied out of a box, in bytes: evidence is written
// with the agent's help, and a full disk of the host is not for it to decide.
const maxUnpack = 4 << 30

// maxResult bounds result.json, in bytes.
const maxResult = 64 << 20

// reserved are the names in a task's folder that are the host's own; the
// box cannot replace them.
var reserved = map[string]bool{
	workorder.EventsFile: true, workorder.OrderFile: true, "task.json": true, "lock": true,
	"companion.log": true, "tmp": true,
}

// unpack writes a tar of the box's output folder into dir and returns the content
// of its result file instead of writing it. Only plain files and folders are
// taken, and nothing can leave dir: the archive comes from an untrusted box.
func unpack(r io.Reader, dir string) (result []byte, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	tr := tar.NewReader(r)
	left := int64(maxUnpack)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return result, nil
		}
		if err != nil {
			return result, err
		}
		// The engine puts the folder's own name in front.
		whole := strings.TrimSuffix(h.Name, "/")
		_, name, _ := strings.Cut(whole, "/")
		top, _, _ := strings.Cut(name, "/")
		if !fs.ValidPath(whole) || name == "" || reserved[top] || strings.HasPrefix(top, ".") {
			continue
		}
		switch {
		case h.Typeflag == tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case h.Typeflag != tar.TypeReg:
		case name == workorder.ResultFile:
			result, err = io.ReadAll(io.LimitReader(tr, maxResult))
		case h.Size > left:
			return result, fmt.Errorf("output of the box is larger than %d bytes: %s and what follows is not copied", int64(maxUnpack), name)
		default:
			left -= h.Size
			err = writeEntry(root, name, tr)
		}
		if err != nil {
			return result, err
		}
	}
}

func writeEntry(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

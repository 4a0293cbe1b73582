package statedir

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ownerFile has the owner of the state directory's boxes.
const ownerFile = "owner.json"

// Owner is the label of a state directory's boxes, on every engine.
type Owner struct {
	// ID is random, so that it outlives a renamed machine or a moved directory. It includes the directory's first path for readers.
	ID       string `json:"id"`
	LegacyID string `json:"was,omitempty"` // the label of older versions, if boxes may have it
}

// Labels returns the values of the boxes' label.
func (o Owner) Labels() (list []string) {
	for _, l := range []string{o.ID, o.LegacyID} {
		if l != "" {
			list = append(list, l)
		}
	}
	return list
}

// Make creates the state directory if it is missing.
func Make(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return exiterr.New(workorder.ExitGeneral, fmt.Errorf("create the state directory: %w", err),
			"choose a directory that you may write to, with SANDBOX_AGENT_STATE_DIR or XDG_STATE_HOME")
	}
	return nil
}

// TaskIDs returns the ids of the tasks with a directory in the state directory.
func TaskIDs(dir string) (ids []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the state directory: %w", err)
	}
	for _, e := range entries {
		if workorder.ValidTaskID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// OwnerOf returns the state directory's owner, and creates one if there is none. It creates a missing directory only if first is true.
func OwnerOf(dir string, first bool) (o Owner, err error) {
	path := filepath.Join(dir, ownerFile)
	if o, err = readOwner(path); !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	if first {
		if err := Make(dir); err != nil {
			return o, err
		}
	} else if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return Owner{}, nil
	}
	ids, err := TaskIDs(dir)
	if err != nil {
		return o, err
	}
	o = Owner{ID: strings.ToLower(rand.Text()) + ":" + dir}
	if len(ids) > 0 {
		o.LegacyID = oldOwner(dir)
	}
	b, err := json.Marshal(o)
	if err != nil {
		return o, err
	}
	if err := CreateFile(path, append(b, '\n'), 0o600); err != nil && !errors.Is(err, fs.ErrExist) { // another process may be faster
		return Owner{}, fmt.Errorf("write the owner of the state directory: %w", err)
	}
	return readOwner(path)
}

func readOwner(path string) (o Owner, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return o, fmt.Errorf("read the owner of the state directory: %w", err)
	}
	if err = json.Unmarshal(b, &o); err == nil && o.ID == "" {
		err = errors.New("it names none")
	}
	if err != nil {
		return Owner{}, fmt.Errorf("the owner of the state directory is damaged: %s: %w: remove the file when none of its sandboxes runs",
			path, err)
	}
	return o, nil
}

// oldOwner is the label of older versions.
func oldOwner(stateDir string) string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return name + "@" + host + ":" + stateDir
}

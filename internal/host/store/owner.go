package store

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

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

// ownerFile has the owner of this state folder's boxes.
const ownerFile = "owner.json"

// Owner is the label of a state folder's boxes, on every engine.
type Owner struct {
	// ID is drawn once, so that boxes keep their owner when the machine is renamed or the folder is moved. It
	// contains the folder's path of that time, for people who find such a box elsewhere.
	ID string `json:"id"`
	// Was is the label of older versions, if there can be boxes with it.
	Was string `json:"was,omitempty"`
}

// Labels are the values of the boxes' label.
func (o Owner) Labels() (list []string) {
	for _, l := range []string{o.ID, o.Was} {
		if l != "" {
			list = append(list, l)
		}
	}
	return list
}

// Owner reads the folder's owner, and draws one if there is none. A missing folder has no boxes: it is only made if
// first, for a first task.
func (s *Store) Owner(first bool) (o Owner, err error) {
	path := filepath.Join(s.dir, ownerFile)
	if o, err = readOwner(path); !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	if first {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return o, stateFolder(err)
		}
	} else if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return Owner{}, nil
	}
	ids, err := s.ids()
	if err != nil {
		return o, err
	}
	o = Owner{ID: strings.ToLower(rand.Text()) + ":" + s.dir}
	if len(ids) > 0 {
		o.Was = oldOwner(s.dir)
	}
	b, err := json.Marshal(o)
	if err != nil {
		return o, err
	}
	if err := statedir.CreateFile(path, append(b, '\n'), 0o600); err != nil && !errors.Is(err, fs.ErrExist) { // another process may be faster
		return Owner{}, fmt.Errorf("write the owner of the state folder: %w", err)
	}
	return readOwner(path)
}

func readOwner(path string) (o Owner, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return o, fmt.Errorf("read the owner of the state folder: %w", err)
	}
	if err = json.Unmarshal(b, &o); err == nil && o.ID == "" {
		err = errors.New("it names none")
	}
	if err != nil {
		return Owner{}, fmt.Errorf("the owner of the state folder is damaged: %s: %w: remove the file when none of its sandboxes runs", path, err)
	}
	return o, nil
}

// oldOwner is the label of older versions: the user, the machine's name and the state folder.
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

package taskstore

import (
	"os"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Unbegun lists tasks whose command died before it wrote their record, and whose directories nothing has changed since.
func (s *Store) Unbegun(since time.Time) (ids []string) {
	dirs, _ := os.ReadDir(s.dir) // List reports an unreadable one
	for _, d := range dirs {
		if st, err := d.Info(); err == nil && d.IsDir() && workorder.ValidTaskID(d.Name()) && st.ModTime().Before(since) && s.unbegun(d.Name()) {
			ids = append(ids, d.Name())
		}
	}
	return ids
}

func (s *Store) unbegun(id string) bool {
	files, err := os.ReadDir(s.TaskDir(id))
	return err == nil && (len(files) == 0 || len(files) == 1 && files[0].Name() == lockFile)
}

// RemoveUnbegun removes the directory of such a task, unless the task has begun meanwhile.
func (s *Store) RemoveUnbegun(id string) error {
	lock, err := s.TryLock(id)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if !s.unbegun(id) {
		return nil
	}
	return os.RemoveAll(s.TaskDir(id))
}

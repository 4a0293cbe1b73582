package sandboxstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

// callsSuffix is that of the files with calls of the model gateway, by sandbox. They survive the sandbox.
const callsSuffix = ".calls.jsonl"

// callsLock is the file whose lock a command holds while it adds calls.
const callsLock = ".calls.lock"

// MaxCalls bounds the calls of one sandbox, in bytes; the newest remain.
const MaxCalls = 32 << 20

func (s *Store) callsFile(name string) string { return filepath.Join(s.dir, name+callsSuffix) }

// Calls returns the calls of a sandbox's model gateway, one JSON document per line, oldest first.
func (s *Store) Calls(name string) ([]byte, error) {
	b, err := os.ReadFile(s.callsFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// AddCalls adds those of the lines that are new: a sandbox's own file has former calls, too.
func (s *Store) AddCalls(ctx context.Context, name string, lines []byte) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("keep the calls of sandbox %s: %w", name, err)
	}
	l, err := lockfile.Take(ctx, filepath.Join(s.dir, callsLock))
	if err != nil {
		return fmt.Errorf("keep the calls of sandbox %s: %w", name, err)
	}
	defer l.Release()
	kept, err := s.Calls(name)
	if err != nil {
		return fmt.Errorf("keep the calls of sandbox %s: %w", name, err)
	}
	seen, was := map[string]bool{}, len(kept)
	for line := range bytes.Lines(kept) {
		seen[string(line)] = true
	}
	for line := range bytes.Lines(lines) {
		if bytes.HasSuffix(line, []byte("\n")) && !seen[string(line)] { // the last one may be being written
			kept = append(kept, line...)
		}
	}
	if len(kept) == was {
		return nil
	}
	if over := len(kept) - MaxCalls; over > 0 {
		kept = kept[over+bytes.IndexByte(kept[over:], '\n')+1:]
	}
	return statedir.WriteFile(s.callsFile(name), kept, 0o600)
}

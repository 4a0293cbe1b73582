package jail

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

// triedFile has the circumstances of the last successful trial: a trial costs as much as a start.
const triedFile = "jail.tried"

// tried tries to create an empty jail, unless a trial succeeded under the same circumstances.
func (s *jails) tried(ctx context.Context) error {
	now := circumstances()
	if dir, err := os.OpenRoot(s.o.State); err == nil {
		defer dir.Close()
		me := uint32(os.Geteuid())
		if had, err := safeopen.Read(dir, triedFile, &me, int64(len(now))); err == nil && now != "" && string(had) == now {
			return nil
		}
	}
	if err := tryBubblewrap(ctx); err != nil {
		return err
	}
	if now != "" && os.MkdirAll(s.o.State, 0o700) == nil && onlyOurs(s.o.State) == nil {
		_ = os.WriteFile(filepath.Join(s.o.State, triedFile), []byte(now), 0o600) // if it fails, the next command tries again
	}
	return nil
}

// doubt repeats the trial after a failed start of a jail, and returns its error.
func (s *jails) doubt(ctx context.Context) error {
	if s.kind != kindJail {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fits = false
	_ = os.Remove(filepath.Join(s.o.State, triedFile)) // may not exist
	return s.tried(ctx)
}

// circumstances identifies the conditions for jails: the boot, the program, the user, and the restrictions of this process. It is
// "" if they are unknown.
func circumstances() string {
	path, err := proc.Find(program)
	if err != nil {
		return ""
	}
	st, err := os.Stat(path)
	if err != nil {
		return ""
	}
	h := sha256.New()
	sys := st.Sys().(*syscall.Stat_t)
	fmt.Fprintln(h, path, sys.Dev, sys.Ino, st.Size(), st.ModTime().UnixNano(), st.Mode(), os.Geteuid(), os.Getegid())
	for _, name := range slices.Concat(forbidding, []string{"kernel/random/boot_id"}) {
		b, _ := os.ReadFile("/proc/sys/" + name) // may not exist
		fmt.Fprintf(h, "%s %q\n", name, b)
	}
	for _, name := range []string{"user", "mnt", "pid"} {
		to, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return ""
		}
		fmt.Fprintln(h, to)
	}
	label, _ := os.ReadFile("/proc/self/attr/current") // empty without a security module
	fmt.Fprintf(h, "%q\n", label)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		name, _, _ := strings.Cut(line, ":")
		if strings.HasPrefix(name, "Cap") || name == "NoNewPrivs" || name == "Seccomp" || name == "Seccomp_filters" {
			fmt.Fprint(h, line)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

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

// triedFile says under which circumstances an empty jail could be made: a trial costs as much as bubblewrap itself.
const triedFile = "jail.tried"

// tried makes an empty jail, unless one could be made under the same circumstances: a jail that cannot be made all the same forgets that.
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
		_ = os.WriteFile(filepath.Join(s.o.State, triedFile), []byte(now), 0o600) // without it the next one tries again
	}
	return nil
}

// doubt tries again after a jail could not be started, and returns why there can be none here any more.
func (s *jails) doubt(ctx context.Context) error {
	if s.kind != kindJail {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fits = false
	_ = os.Remove(filepath.Join(s.o.State, triedFile)) // what is there is tried all the same
	return s.tried(ctx)
}

// circumstances name what decides whether a jail can be made: the start of the machine, the program, the user, and what
// holds this process itself. It is "" where that is unknown.
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
		b, _ := os.ReadFile("/proc/sys/" + name) // not every kernel has each
		fmt.Fprintf(h, "%s %q\n", name, b)
	}
	for _, name := range []string{"user", "mnt", "pid"} {
		to, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return ""
		}
		fmt.Fprintln(h, to)
	}
	label, _ := os.ReadFile("/proc/self/attr/current") // without a security module there is none
	fmt.Fprintf(h, "%q\n", label)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		if name, _, _ := strings.Cut(
			line, ":",
		); strings.HasPrefix(name, "Cap") || name == "NoNewPrivs" || name == "Seccomp" ||
			name == "Seccomp_filters" {
			fmt.Fprint(h, line)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

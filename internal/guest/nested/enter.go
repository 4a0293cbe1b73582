package nested

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Enter turns this process's namespaces into those of a nested sandbox, as their first process. It leaves a
// configuration for the server in wire.ConfigFD.
func Enter() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("enter a nested sandbox: this is process %d, but must be the first one", os.Getpid())
	}
	from := os.NewFile(wire.ConfigFD, "lease")
	b, err := io.ReadAll(io.LimitReader(from, wire.MaxDocument))
	if err != nil {
		return fmt.Errorf("enter a nested sandbox: read the plan: %w", err)
	}
	var l plan
	if err := json.Unmarshal(b, &l); err != nil {
		return fmt.Errorf("enter a nested sandbox: read the plan: %w", err)
	}
	uid, gid, err := ids(l.User)
	if err != nil {
		return fmt.Errorf("enter a nested sandbox: %w", err)
	}
	if err := mountAll(l.NestedConfig, uid, gid); err != nil {
		return fmt.Errorf("enter a nested sandbox: %w", err)
	}
	if !l.Network {
		if err := loopback(); err != nil {
			return fmt.Errorf("enter a nested sandbox: %w", err)
		}
	}
	if err := drop(); err != nil {
		return fmt.Errorf("enter a nested sandbox: %w", err)
	}
	config, err := json.Marshal(wire.Config{
		User: l.User, Dir: l.Dir, Env: append(l.Env, "HOME="+l.Dir, "USER=sandbox", "LOGNAME=sandbox"), Proxy: l.Proxy,
	})
	if err != nil {
		return err
	}
	if err := from.Truncate(0); err != nil {
		return fmt.Errorf("enter a nested sandbox: %w", err)
	}
	if _, err := from.WriteAt(config, 0); err != nil {
		return fmt.Errorf("enter a nested sandbox: %w", err)
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("enter a nested sandbox: %w", err)
	}
	// The server closes the descriptor when it has read it; the garbage collection of this file must not.
	fd, err := unix.Dup(wire.ConfigFD)
	if err != nil {
		return fmt.Errorf("enter a nested sandbox: %w", err)
	}
	_ = from.Close()
	if err := unix.Dup3(fd, wire.ConfigFD, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("enter a nested sandbox: %w", err)
	}
	return unix.Close(fd)
}

// ids parses uid:gid of a user other than root.
func ids(user string) (uid, gid int, err error) {
	if n, err := fmt.Sscanf(user, "%d:%d", &uid, &gid); err != nil || n != 2 || uid <= 0 || gid <= 0 {
		return 0, 0, fmt.Errorf("user %q must be uid:gid and not root", user)
	}
	return uid, gid, nil
}

package roles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/standalone"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wireserver"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ready marks a standalone box that has been prepared before, in its own file system.
const ready = "/var/lib/sandbox-agent/ready"

// standaloneServer implements boot.StandaloneServer.
type standaloneServer struct {
	parts     *parts
	restarted bool
}

func madeReady() bool {
	_, err := os.Lstat(ready)
	return err == nil
}

// forget removes the record of the box's previous run: this one starts a new record.
func forget(p paths) error {
	return errors.Join(
		os.RemoveAll(p.state), os.Remove(filepath.Join(p.out, workorder.ResultFile)), os.Truncate(filepath.Join(p.out, workorder.EventsFile), 0),
	)
}

func (s *standaloneServer) Restarted() bool { return s.restarted }

// Serve serves the wire protocol. Commands run with the agent's user, environment, control group and mount namespace.
func (s *standaloneServer) Serve(ctx context.Context) (over, err error) {
	l, err := listen(ctx, workorder.WireSocket)
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	defer l.Close()
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		return nil, fmt.Errorf("mark the sandbox as ready: %w", err)
	}
	if err = wireserver.New(s.config()).Serve(ctx, l); standalone.ExpectedEnd(err) {
		return err, nil
	}
	return nil, err
}

func (s *standaloneServer) config() wireserver.Config {
	u := s.parts.user
	user := &supervise.User{UID: u.UID, GID: u.GID, Groups: u.Groups, Cgroup: u.Cgroup}
	if u.Namespace != nil {
		user.Namespace = u.Namespace.Name()
	}
	guard := supervise.OrphanGuard{UID: &u.UID}
	if g := u.Cgroup; g != nil {
		for _, dir := range append(slices.Clone(g.V1), g.Unified) {
			guard.Dirs = append(guard.Dirs, filepath.Dir(dir)) // the limit applies to all work together
		}
	}
	o := s.parts.order.Standalone
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	c := wireserver.Config{
		User: user, Dir: workorder.Workspace, Home: workorder.SandboxHome, Env: s.parts.task.Environ(),
		Self: "/proc/self/exe", Reap: []string{"reap"}, Files: []string{"files"}, FilesAs: u, OOMKills: s.parts.groups.OOMKills,
		OrphanGuard: guard,
		Network:     s.parts.network(),
		IdleTimeout: ms(o.IdleTimeoutMS), TTL: ms(o.TTLMS), OwnerTimeout: ms(o.OwnerTimeoutMS),
	}
	if m := s.parts.mask.Load(); m != nil {
		c.Mask = m.Writer
	}
	if s.parts.models != nil {
		c.SetKeys = s.parts.models.SetKeys
	}
	return c
}

// listen creates a socket that only root can reach: its directory is root's.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(socket, 0o600)
}

// Dial connects standard input and output to the server of a standalone box.
func Dial(ctx context.Context) error {
	return standalone.Dial(ctx, standalone.Paths{Socket: workorder.WireSocket}, os.Stdin, os.Stdout)
}

// Package standalone is the guest of a standalone sandbox: its first process, its server and the dialler for clients outside.
package standalone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/nested"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wireserver"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// defaultPath is the PATH of an image that sets none.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Paths are the paths of a guest's files; Default except in tests.
type Paths struct{ Config, Socket string }

// Default returns the paths in a container.
func Default() Paths { return Paths{Config: wire.ConfigFile, Socket: wire.SocketFile} }

// Self is this program.
const Self = "/proc/self/exe"

// Serve serves until ctx or the sandbox ends, and returns the reason: see wireserver.Server.
func Serve(ctx context.Context, p Paths) error {
	b, err := os.ReadFile(p.Config)
	if err != nil {
		return fmt.Errorf("read the sandbox's configuration: %w", err)
	}
	config, c, err := read(b) // a container has control groups
	if err != nil {
		return err
	}
	if c.Nested != nil {
		maker := nested.Starter{Self: Self, Role: []string{"lease"}, NestedConfig: *c.Nested, Env: c.Env}
		config.StartNested = func(ctx context.Context) (wireserver.Nested, error) { return maker.Start(ctx) }
	}
	if err := supervise.Adopt(); err != nil {
		return err
	}
	// The socket of a killed guest still exists. Only root reaches it: the directory is root's.
	if err := os.Remove(p.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listen for clients: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", p.Socket)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer l.Close()
	if err := os.Chmod(p.Socket, 0o600); err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	return wireserver.New(config).Serve(ctx, l)
}

func read(b []byte) (config wireserver.Config, c wire.Config, err error) {
	if err := json.Unmarshal(b, &c); err != nil {
		return wireserver.Config{}, c, fmt.Errorf("read the sandbox's configuration: %w", err)
	}
	if err := safeopen.Verify(c.Mounts, c.Kernel); err != nil {
		return wireserver.Config{}, c, err
	}
	if config, err = configure(c); err == nil && c.Proxy {
		err = listenProxy(&config)
	}
	return config, c, err
}

// configure completes a configuration with properties of the sandbox.
func configure(c wire.Config) (wireserver.Config, error) {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	if c.Dir != "" {
		dir = c.Dir
	}
	who, name, home, err := lookUp(c.User)
	if err != nil {
		return wireserver.Config{}, err
	}
	if c.OwnDir {
		if err := own(dir, who); err != nil {
			return wireserver.Config{}, err
		}
	}
	env := append([]string{defaultPath}, os.Environ()...)
	env = append(env, "HOME="+home, "USER="+name, "LOGNAME="+name)
	expanded, err := text.ExpandReferences(c.ImageEnv, env)
	if err != nil {
		return wireserver.Config{}, err
	}
	env = append(env, expanded...)
	kills := func() int { return 0 }
	if !c.Unisolated {
		groups, err := cgroups.Open()
		if err != nil {
			groups = nil // the groups are not divided here
		}
		kills = groups.OOMKills
	}
	return wireserver.Config{
		Self: Self, Reap: []string{"reap"}, Files: []string{"files"}, User: who, Dir: dir, Home: home, Env: append(env, c.Env...),
		OOMKills: kills, DataBytes: c.DataBytes, OrphanGuard: supervise.OrphanGuard{Dirs: []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids"}},
		IdleTimeout: time.Duration(c.IdleTimeoutMS) * time.Millisecond, TTL: time.Duration(c.TTLMS) * time.Millisecond,
		OwnerTimeout: time.Duration(c.OwnerTimeoutMS) * time.Millisecond,
	}, nil
}

// listenProxy opens the sandbox's proxy before any command runs, and names it in variables. The others win.
func listenProxy(c *wireserver.Config) error {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return fmt.Errorf("open the sandbox's proxy: %w", err)
	}
	c.Proxy = l
	env := []string{"NODE_USE_ENV_PROXY=1"} // Node.js ignores the others without it
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
		env = append(env, name+"=http://"+l.Addr().String())
	}
	c.Env = append(append(env, "no_proxy=localhost,127.0.0.1,::1", "NO_PROXY=localhost,127.0.0.1,::1"), c.Env...)
	return nil
}

// own creates a missing directory, and gives it to a user.
func own(dir string, who *supervise.User) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the sandbox's directory: %w", err)
	}
	if who == nil {
		return nil
	}
	if err := os.Chown(dir, int(who.UID), int(who.GID)); err != nil {
		return fmt.Errorf("change the owner of the sandbox's directory: %w", err)
	}
	return nil
}

// lookUp finds a user of the sandbox in its /etc/passwd and /etc/group; nil for the guest's own. A numeric user need not exist.
func lookUp(spec string) (who *supervise.User, name, home string, err error) {
	id, group, _ := strings.Cut(spec, ":")
	if id == "" && os.Getuid() != 0 { // the guest cannot become another user
		me := strconv.Itoa(os.Getuid())
		if u, err := user.LookupId(me); err == nil {
			return nil, u.Username, u.HomeDir, nil
		}
		return nil, me, "/", nil
	}
	if id == "" || id == "0" || id == "root" {
		return nil, "root", "/root", nil
	}
	u, err := user.Lookup(id)
	if err != nil {
		u, err = user.LookupId(id)
	}
	var found *user.User
	switch uid, nerr := strconv.ParseUint(id, 10, 32); {
	case err == nil:
		found = u
	case nerr == nil:
		found = &user.User{Uid: strconv.FormatUint(uid, 10), Gid: "0", Username: id, HomeDir: "/"}
	default:
		return nil, "", "", fmt.Errorf("the image has no user %q", id)
	}
	if found.Uid == "0" {
		return nil, found.Username, found.HomeDir, nil
	}
	if group != "" {
		g, err := user.LookupGroup(group)
		if err == nil {
			group = g.Gid
		}
		found.Gid = group
	}
	uid, uerr := strconv.ParseUint(found.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(found.Gid, 10, 32)
	if uerr != nil || gerr != nil {
		return nil, "", "", fmt.Errorf("the image has no group %q", group)
	}
	who = &supervise.User{UID: uint32(uid), GID: uint32(gid)}
	ids, err := found.GroupIds()
	if err != nil {
		ids = nil // a user without an entry is in no other group
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			who.Groups = append(who.Groups, uint32(n))
		}
	}
	return who, found.Username, found.HomeDir, nil
}

const (
	// dialTime bounds the wait of a dialler for a server that does not listen yet.
	dialTime = 10 * time.Second
	dialPoll = 5 * time.Millisecond
)

// Dial copies between a stream from outside and the server. It returns when the server has closed its side.
func Dial(ctx context.Context, p Paths, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var conn net.Conn
	for {
		var err error
		if conn, err = (&net.Dialer{}).DialContext(ctx, "unix", p.Socket); err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("reach the sandbox's guest: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("reach the sandbox's guest: not listening after %s: %w", dialTime, err)
		case <-time.After(dialPoll):
		}
	}
	defer conn.Close()
	go func() {
		_, _ = pass(conn, in)
		_ = conn.Close() // the client is gone: there is no reader for an answer
	}()
	if _, err := pass(out, conn); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("forward the guest's output: %w", err)
	}
	return nil
}

// passSize is the copy buffer's size, in bytes: more than one output frame of the wire protocol.
const passSize = 256 << 10

// pass copies a stream through memory: io.Copy's splice polls a full pipe and occupies a whole CPU.
func pass(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, passSize))
}

// ExpectedEnd reports whether an error of Serve is the regular end of the sandbox rather than a failure.
func ExpectedEnd(err error) bool {
	ends := []error{wireserver.ErrStopped, wireserver.ErrIdleTimeout, wireserver.ErrTTLExpired, wireserver.ErrOwnerTimeout}
	return slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) })
}

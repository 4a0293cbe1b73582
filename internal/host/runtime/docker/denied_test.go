package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// TestDeniedSocket: no right to the socket is told from an engine that is not there, with the group that has the right.
func TestDeniedSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "engine.sock")
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	gid := os.Getgid()
	if os.Getuid() == 0 { // root's own group is nothing to join: any other with a name
		for id := 1; id < 1000; id++ {
			if _, err := user.LookupGroupId(strconv.Itoa(id)); err == nil {
				gid = id
				break
			}
		}
		if err := unix.Chown(path, 0, gid); err != nil {
			t.Fatal(err)
		}
	}
	g, err := user.LookupGroupId(strconv.Itoa(gid))
	if err != nil {
		t.Fatal(err)
	}
	e := &api{host: "unix://" + path}
	for _, cause := range []error{
		fmt.Errorf("dial unix %s: %w", path, fs.ErrPermission),
		errors.New("permission denied while trying to connect to the Docker API at unix://" + path),
	} {
		err := e.wrap("ask the engine", cause)
		d, ok := errors.AsType[*runtime.DeniedError](err)
		if !ok || d.Group != g.Name || !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(d.Hint(), "sudo usermod -aG "+g.Name) {
			t.Errorf("%v: %+v", err, d)
		}
	}
	if err := e.wrap("ask the engine", errors.New("connection refused")); !errors.Is(err, runtime.ErrUnavailable) {
		t.Error(err)
	} else if _, ok := errors.AsType[*runtime.DeniedError](err); ok {
		t.Errorf("%v is no lack of rights", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := groupOf(path); got != "" {
		t.Errorf("the group %s may not open it", got)
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/porter"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// porterCommand is the hidden command that the process runs that holds a sandbox's endpoints.
const porterCommand = "porter"

func newPorterCmd(a *App) *cobra.Command {
	return &cobra.Command{
		Use: porterCommand + " SANDBOX", Hidden: true, Args: oneSandbox,
		Short: "Hold a sandbox's endpoints (started by what makes them)",
		RunE:  func(cmd *cobra.Command, args []string) error { return a.keep(cmd.Context(), args[0]) },
	}
}

// registry is what is kept of sandboxes in the state folder.
func (a *App) registry() (*registry.Registry, error) {
	st, err := a.store()
	if err != nil {
		return nil, err
	}
	return registry.New(st.Dir()), nil
}

// porterOf is the porter of a sandbox's endpoints; it is there from the first endpoint on.
func (a *App) porterOf(name string) (*porter.Porter, error) {
	st, err := a.store()
	if err != nil {
		return nil, err
	}
	k := &porter.Porter{Dir: registry.New(st.Dir()).Dir(name)}
	if a.Executable == nil {
		return k, nil
	}
	exe, err := a.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	// It has another current folder than this command.
	k.Argv, k.Env = []string{exe, porterCommand, name}, append(os.Environ(), "SANDBOX_AGENT_STATE_DIR="+st.Dir())
	return k, nil
}

// ensureEndpoints starts the porter of a sandbox that has endpoints and none; that one cannot be served keeps no command from its work.
func (a *App) ensureEndpoints(ctx context.Context, name string) {
	k, err := a.porterOf(name)
	if err == nil {
		err = k.Ensure(ctx)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(a.Stderr, "warning: "+text.Clean(err.Error()))
	}
}

// endpoints are a sandbox's, by its port: where each is on this machine.
func (a *App) endpoints(name string) (map[string]string, error) {
	k, err := a.porterOf(name)
	if err != nil {
		return nil, err
	}
	ports, err := k.Ports()
	return endpointsOf(ports), err
}

func endpointsOf(ports []porter.Port) map[string]string {
	all := map[string]string{}
	for _, p := range ports {
		all[strconv.Itoa(p.Port)] = local(p)
	}
	return all
}

// notePortOrder says which port is which: until the previous release the order was PORT:LOCAL, and a script that was written for it must not change its
// meaning silently.
func notePortOrder(w io.Writer, ports []porter.Port) {
	for _, p := range ports {
		if p.Local != 0 && p.Local != p.Port {
			fmt.Fprintf(w, "note: %d:%d is LOCAL:PORT: port %[2]d of the sandbox, port %[1]d of this machine\n", p.Local, p.Port)
		}
	}
}

func local(p porter.Port) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Local)) }

// expose makes endpoints of a sandbox.
func (a *App) expose(ctx context.Context, name string, ports []porter.Port) ([]porter.Port, error) {
	k, err := a.porterOf(name)
	if err != nil {
		return nil, err
	}
	notePortOrder(a.Stderr, ports)
	added, err := k.Add(ctx, ports)
	return added, sandboxError(err)
}

// unexpose ends endpoints of a sandbox.
func (a *App) unexpose(ctx context.Context, name string, ports []int) error {
	k, err := a.porterOf(name)
	if err == nil {
		err = k.Remove(ctx, ports)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(err, "`sandbox-agent ports "+name+"` lists endpoints")
	}
	return sandboxError(err)
}

// keep is the porter's life.
func (a *App) keep(ctx context.Context, name string) error {
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	defer m.Close()
	r, err := a.registry()
	if err != nil {
		return err
	}
	return porter.Serve(ctx, r.Dir(name), &exposed{m: m, name: name})
}

// exposed is a sandbox as its porter sees it.
type exposed struct {
	m    *sandbox.Manager
	name string
	mu   sync.Mutex
	sb   *sandbox.Sandbox
}

// Reach implements porter.Sandbox.
func (e *exposed) Reach(ctx context.Context, port int) (net.Conn, error) {
	sb, err := e.find(ctx, nil)
	if err != nil {
		return nil, err
	}
	conn, err := sb.Reach(ctx, port)
	if !errors.Is(err, sandbox.ErrNotFound) {
		return conn, err
	}
	if sb, err = e.find(ctx, sb); err != nil { // it was made anew
		return nil, err
	}
	return sb.Reach(ctx, port)
}

// find is the sandbox, looked for where there is none but the stale one.
func (e *exposed) find(ctx context.Context, stale *sandbox.Sandbox) (*sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sb == stale {
		sb, err := e.m.Get(ctx, e.name)
		if err != nil {
			return nil, err
		}
		if e.sb != nil {
			_ = e.sb.Close(ctx) // it is not used any more
		}
		e.sb = sb
	}
	return e.sb, nil
}

// Look implements porter.Sandbox.
func (e *exposed) Look(ctx context.Context) error {
	sb, err := e.m.Get(ctx, e.name)
	if errors.Is(err, sandbox.ErrNotFound) || err == nil && sb.Info().State == sandbox.StateMissing {
		return porter.ErrGone
	}
	return err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/host/loopback"
	"github.com/sandbox-agent/sandbox-agent/internal/host/poolserver"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Files of a pool in the state folder.
const (
	poolSocket = "pool.sock"
	poolLock   = "pool.lock"
	poolToken  = "pool.token" // of --listen
)

// poolName begins the names of a pool's sandboxes: of those of a state folder, who has the lock has all.
const poolName = "pool-"

type poolServeOptions struct {
	pool   pool.Options
	image  string
	socket string
	listen string
	idle   time.Duration
	allow  []string

	sources []poolserver.Source
}

func newPoolServeCmd(a *App) *cobra.Command {
	o := &poolServeOptions{}
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a pool until it is stopped",
		Long: `Serves a pool at a socket of the state directory, for the other commands of
'pool' and for programs in any language (docs/pool.md has the API). With
--listen it also serves it at a port of the loopback, with the token of
pool.token in the state directory. When it is stopped it removes its sandboxes,
and ends with 1 if that fails. When it is killed, they end within a minute.

Leases without an image have a small one with python, node, git, jq and curl,
which is built when it is missing.`,
		Example: "  sandbox-agent pool serve\n  sandbox-agent pool serve --max 8 --wait 30s\n  sandbox-agent pool serve --image python:3.13 --listen 127.0.0.1:7070\n  sandbox-agent pool serve --allow-mount ./data:ro",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), a) },
	}
	f := cmd.Flags()
	f.IntVar(&o.pool.Max, "max", pool.DefaultMax, "maximum number of sandboxes, lent or idle")
	f.IntVar(&o.pool.Warm, "warm", 0, "idle sandboxes to keep ready for each kind that was asked for")
	durationVar(f, &o.pool.Wait, "wait", 0, "time that a request waits for a free sandbox (default: it fails at once)")
	f.StringVar(&o.image, "image", "", "image of leases without one (default: a small one)")
	f.StringVar(&o.socket, "socket", "", "path of the socket (default: in the state directory)")
	f.StringVar(&o.listen, "listen", "", "also listen at this loopback address, such as 127.0.0.1:7070")
	f.StringArrayVar(&o.allow, "allow-mount", nil, "directory that leases may mount, with all below: `DIR[:ro]` (repeatable)")
	durationVar(f, &o.idle, "lease-idle", poolserver.DefaultLeaseIdle, "end a lease after this long without use")
	return cmd
}

func (o *poolServeOptions) check(a *App) error {
	var errs []error
	if o.pool.Max < 1 {
		errs = append(errs, fmt.Errorf("--max %d: use 1 or more", o.pool.Max))
	}
	if o.pool.Warm < 0 || o.pool.Wait < 0 || o.idle <= 0 {
		errs = append(errs, errors.New("--warm and --wait must not be negative, and --lease-idle must be positive"))
	}
	if o.listen != "" {
		errs = append(errs, loopback.Check(o.listen))
	}
	for _, dir := range o.allow {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(a.Dir, dir)
		}
		src, err := poolserver.NewSource(dir)
		if err != nil {
			err = fmt.Errorf("--allow-mount: %w", err)
		}
		o.sources, errs = append(o.sources, src), append(errs, err)
	}
	return fault.New(workorder.ExitUsage, errors.Join(errs...), "")
}

func (o *poolServeOptions) do(ctx context.Context, a *App) error {
	if err := o.check(a); err != nil {
		return err
	}
	st, err := a.store()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(st.Dir(), 0o700); err != nil {
		return fmt.Errorf("make the state folder: %w", err)
	}
	if o.socket == "" {
		o.socket = filepath.Join(st.Dir(), poolSocket)
	}
	const soon = 100 * time.Millisecond
	once, cancel := context.WithTimeoutCause(ctx, soon, errors.New("another pool is served with this state folder"))
	defer cancel()
	lock, err := lockfile.Take(once, filepath.Join(st.Dir(), poolLock))
	if err != nil {
		return fault.New(workorder.ExitGeneral, err, "`sandbox-agent pool stats` asks that one; another SANDBOX_AGENT_STATE_DIR has another pool")
	}
	defer lock.Release()
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	defer m.Close()
	o.pool.Image = func(context.Context) (string, error) { return o.image, nil }
	if o.image == "" {
		if o.image, err = a.smallImage(ctx); err != nil {
			return err
		}
	}
	o.pool.Log, o.pool.Name = a.Log(), poolName
	p := pool.New(m, o.pool)
	if err := p.Reap(ctx); err != nil {
		o.pool.Log.Warn("what a pool has left that was killed is not all gone", "error", err)
	}
	listeners, err := o.listeners(ctx, a, st.Dir())
	if err != nil {
		return err
	}
	served := poolserver.New(p, o.idle, o.sources, o.pool.Log).Serve(ctx, listeners...)
	if err := p.Close(context.WithoutCancel(ctx)); err != nil {
		return fault.New(workorder.ExitGeneral, errors.Join(served, err), "what is left ends by itself within a minute; `sandbox-agent gc` removes what cannot")
	}
	return sandboxError(served)
}

// maxSocket is the longest path that a socket can have on Linux.
const maxSocket = 107

// listeners are where the pool is asked.
func (o *poolServeOptions) listeners(ctx context.Context, a *App, dir string) (all []poolserver.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	l, err := poolserver.Listen(ctx, o.socket)
	if err != nil {
		hint := "name another path with --socket"
		if len(o.socket) > maxSocket {
			hint = fmt.Sprintf("a socket's path has at most %d characters: name a shorter one with --socket", maxSocket)
		}
		return nil, fault.New(workorder.ExitGeneral, fmt.Errorf("make the pool's socket: %w", err), hint)
	}
	all = append(all, poolserver.Listener{Listener: l})
	fmt.Fprintf(a.Stderr, "the pool is at %s\n", o.socket)
	if o.listen == "" {
		return all, nil
	}
	file := filepath.Join(dir, poolToken)
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // each pool has a token of its own
		return all, fmt.Errorf("make the pool's token anew: %w", err)
	}
	token, err := loopback.KeptToken(file)
	if err != nil {
		return all, err
	}
	t, err := loopback.Listen(ctx, o.listen)
	if err != nil {
		return all, err
	}
	fmt.Fprintf(a.Stderr, "and at http://%s, for who has the token in %s\n", t.Addr(), file)
	return append(all, poolserver.Listener{Listener: t, Token: token}), nil
}

// smallImage is the image of environments and pools, built when it is missing, which is told.
func (a *App) smallImage(ctx context.Context) (string, error) {
	be, err := a.open()
	if err != nil {
		return "", err
	}
	built := false
	img, err := be.Images.Small(ctx, func(name string) {
		built = true
		fmt.Fprintf(a.Stderr, "Image %q not found, building...\n", name)
	}, nil)
	if err != nil {
		return "", err
	}
	if built {
		fmt.Fprintf(a.Stderr, "Image %q built successfully\n", img.Name)
	}
	return img.Name, nil
}

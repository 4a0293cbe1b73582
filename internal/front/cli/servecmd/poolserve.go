package servecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/front/poolserver"
	"github.com/sandbox-agent/sandbox-agent/internal/host/loopback"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Files of a pool in the state directory.
const (
	poolSocket = "pool.sock"
	poolToken  = "pool.token" // of --listen
)

type poolServeOptions struct {
	pool   pool.Options
	image  string
	socket string
	listen string
	idle   time.Duration
	ttl    time.Duration
	allow  []string

	sources []poolserver.Source
}

func newPoolServeCmd(f *cmdutil.Factory) *cobra.Command {
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
		Example: "  sandbox-agent pool serve\n" +
			"  sandbox-agent pool serve --max 8 --wait 30s\n" +
			"  sandbox-agent pool serve --image python:3.13 --listen 127.0.0.1:7070\n" +
			"  sandbox-agent pool serve --allow-mount ./data:ro",
		Args: cmdutil.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&o.pool.Max, "max", pool.DefaultMax, "maximum number of sandboxes, lent or idle")
	flags.IntVar(&o.pool.Warm, "warm", 0, "idle sandboxes to keep ready for each kind that was asked for")
	cmdutil.DurationVar(flags, &o.pool.Wait, "wait", 0, "time that a request waits for a free sandbox (default: it fails at once)")
	flags.StringVar(&o.image, "image", "", "image of leases without one (default: a small one)")
	flags.StringVar(&o.socket, "socket", "", "path of the socket (default: in the state directory)")
	flags.StringVar(&o.listen, "listen", "", "also listen at this loopback address, such as 127.0.0.1:7070")
	flags.StringArrayVar(&o.allow, "allow-mount", nil, "directory that leases may mount, with all below: `DIR[:ro]` (repeatable)")
	cmdutil.DurationVar(flags, &o.idle, "lease-idle", poolserver.DefaultLeaseIdle, "end a lease after this long without use")
	cmdutil.DurationVar(flags, &o.ttl, "lease-ttl", 0, "end a lease after this long, used or not (default: never)")
	return cmd
}

func (o *poolServeOptions) check(f *cmdutil.Factory) error {
	var errs []error
	if o.pool.Max < 1 {
		errs = append(errs, fmt.Errorf("--max %d: use 1 or more", o.pool.Max))
	}
	if o.pool.Warm < 0 || o.pool.Wait < 0 || o.ttl < 0 || o.idle <= 0 {
		errs = append(errs, errors.New("--warm, --wait and --lease-ttl must not be negative, and --lease-idle must be positive"))
	}
	if o.listen != "" {
		errs = append(errs, loopback.Check(o.listen))
	}
	for _, dir := range o.allow {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(f.Dir, dir)
		}
		src, err := poolserver.NewSource(dir)
		if err != nil {
			err = fmt.Errorf("--allow-mount: %w", err)
		}
		o.sources, errs = append(o.sources, src), append(errs, err)
	}
	return exiterr.New(workorder.ExitUsage, errors.Join(errs...), "")
}

func (o *poolServeOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	if err := o.check(f); err != nil {
		return err
	}
	return f.WithPool(ctx, o.pool, o.image, func(dir string, p *pool.Pool) error {
		o.socket = cmp.Or(o.socket, filepath.Join(dir, poolSocket))
		listeners, err := o.listeners(ctx, f, dir)
		if err != nil {
			return err
		}
		return poolserver.New(p, o.idle, o.ttl, o.sources, f.Log()).Serve(ctx, listeners...)
	})
}

// maxSocket is the longest path that a socket can have on Linux.
const maxSocket = 107

// listeners are where the pool is asked.
func (o *poolServeOptions) listeners(ctx context.Context, f *cmdutil.Factory, dir string) (all []poolserver.Listener, err error) {
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
		return nil, exiterr.New(workorder.ExitGeneral, fmt.Errorf("make the pool's socket: %w", err), hint)
	}
	all = append(all, poolserver.Listener{Listener: l})
	fmt.Fprintf(f.Stderr, "the pool is at %s\n", o.socket)
	if o.listen == "" {
		return all, nil
	}
	file := filepath.Join(dir, poolToken)
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // each pool has a token of its own
		return all, fmt.Errorf("recreate the pool's token: %w", err)
	}
	token, err := loopback.KeptToken(file)
	if err != nil {
		return all, err
	}
	t, err := loopback.Listen(ctx, o.listen)
	if err != nil {
		return all, err
	}
	fmt.Fprintf(f.Stderr, "and at http://%s; clients need the token in %s\n", t.Addr(), file)
	return append(all, poolserver.Listener{Listener: t, Token: token}), nil
}

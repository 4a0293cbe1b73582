// Package docker runs boxes and standalone sandboxes on a Docker engine by its API.
package docker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	pingTimeout = 10 * time.Second // bounds the first contact: the socket's process may hang
	listTimeout = 30 * time.Second // bounds a list of containers: a loaded engine takes seconds
	// refreshTimeout bounds what is asked about each, and is short beside the bounds of those who ask for a list.
	refreshTimeout = 5 * time.Second
	// createTimeout bounds creating or starting a container, which takes seconds on a loaded machine.
	createTimeout = 2 * time.Minute
	removeTimeout = 30 * time.Second // of a cleanup
	// handOverTime bounds how long HandedOver waits until the engine reports that it has passed on an order. It usually reports at once,
	// but after a slow attachment only when the box ends.
	handOverTime = time.Second
	stopSlack    = 20 * time.Second // the time beyond the grace for the engine to report a stop
	// removeWait bounds the wait for a removal by another process: the engine may have to kill a box and delete many layers.
	removeWait = 60 * time.Second
	removePoll = 50 * time.Millisecond
)

// Engine is a Docker engine. Its methods manage containers of any purpose.
type Engine struct{ api }

// api is the connection to an engine.
type api struct {
	c    *client.Client
	host string
	// Limits of requests by their type.
	listTime, refreshTime, answerTime, createTime time.Duration
	passing                                       sync.WaitGroup // of orders that the engine may still pass on
}

var _ runtime.Runtime = (*Engine)(nil)

// New returns the engine that the docker command would use. It does not contact it.
func New(getenv func(string) string) (*Engine, error) {
	ep, err := currentEndpoint(getenv)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(ep.host, "ssh://") {
		return nil, fmt.Errorf("engine %s: ssh endpoints are not supported: forward the socket (ssh -L) and set DOCKER_HOST to it", ep.host)
	}
	opts := []client.Opt{client.WithAPIVersionNegotiation()}
	if ep.tlsDir != "" {
		opts = append(opts, client.WithTLSClientConfig(
			filepath.Join(ep.tlsDir, "ca.pem"), filepath.Join(ep.tlsDir, "cert.pem"), filepath.Join(ep.tlsDir, "key.pem")))
	}
	if ep.host != "" {
		opts = append(opts, client.WithHost(ep.host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("set up engine client: %w", err)
	}
	return &Engine{api{
		c: c, host: c.DaemonHost(),
		listTime: listTimeout, refreshTime: refreshTimeout, answerTime: answerTimeout, createTime: createTimeout,
	}}, nil
}

// Host returns the engine's address, without contacting it.
func (e *api) Host() string { return e.host }

// Close drops idle connections.
func (e *Engine) Close() error { return e.c.Close() }

// HandedOver implements runtime.HandOver. It waits at most handOverTime.
func (e *Engine) HandedOver() { e.passing.Wait() }

func (e *api) Info(ctx context.Context) (runtime.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if _, err := e.c.Ping(ctx); err != nil {
		return runtime.Info{}, e.wrap("contact engine", err)
	}
	i, err := e.c.Info(ctx)
	if err != nil {
		return runtime.Info{}, e.wrap("ask engine for its properties", err)
	}
	v, _ := strconv.Atoi(i.CgroupVersion)
	info := runtime.Info{
		ID:            i.ID,
		Version:       i.ServerVersion,
		APIVersion:    e.c.ClientVersion(),
		OSType:        i.OSType,
		Arch:          i.Architecture,
		Kernel:        i.KernelVersion,
		OperatingSys:  i.OperatingSystem,
		CgroupVersion: v,
		MemoryBytes:   i.MemTotal,
		Host:          e.host,
		RootDir:       i.DockerRootDir,
		Local:         e.local(i.KernelVersion),
		Rootless:      slices.ContainsFunc(i.SecurityOptions, func(s string) bool { return strings.Contains(s, "rootless") }),
		Seccomp:       slices.ContainsFunc(i.SecurityOptions, func(s string) bool { return strings.HasPrefix(s, "name=seccomp") }),
	}
	for name := range i.Runtimes {
		info.Runtimes = append(info.Runtimes, name)
	}
	slices.Sort(info.Runtimes)
	info.Gateway = e.gateway(ctx)
	return info, nil
}

// local reports whether the engine shares this machine's kernel. The boxes of a local Docker Desktop run in a virtual machine.
func (e *api) local(kernel string) bool {
	if !strings.HasPrefix(e.host, "unix://") {
		return false
	}
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return err == nil && strings.TrimSpace(string(b)) == kernel
}

func (e *api) gateway(ctx context.Context) string {
	n, err := e.c.NetworkInspect(ctx, "bridge", network.InspectOptions{})
	if cerrdefs.IsNotFound(err) {
		n, err = e.c.NetworkInspect(ctx, "podman", network.InspectOptions{}) // podman's name for bridge
	}
	if err != nil {
		return ""
	}
	for _, c := range n.IPAM.Config {
		if a, err := netip.ParseAddr(c.Gateway); err == nil && a.Is4() {
			return c.Gateway
		}
	}
	// An engine whose gateway was not configured does not list it: it is the first address of the subnet.
	for _, c := range n.IPAM.Config {
		if p, err := netip.ParsePrefix(c.Subnet); err == nil && p.Addr().Is4() {
			return p.Masked().Addr().Next().String()
		}
	}
	return ""
}

var (
	_ runtime.Copier     = (*Engine)(nil)
	_ runtime.Execer     = (*Engine)(nil)
	_ runtime.ImageStore = (*Engine)(nil)
	_ runtime.Volumes    = (*Engine)(nil)
	_ runtime.Prober     = (*Engine)(nil)
	_ runtime.HandOver   = (*Engine)(nil)
)

// Run implements runtime.Runtime.
func (e *Engine) Run(ctx context.Context, spec runtime.ContainerSpec, stdin io.Reader) (string, error) {
	cfg, hc, err := hostConfig(spec)
	if err != nil {
		return "", err
	}
	id, err := e.create(ctx, func(ctx context.Context) (container.CreateResponse, error) {
		return e.c.ContainerCreate(ctx, cfg, hc, nil, nil, spec.Name)
	})
	if err != nil {
		if cerrdefs.IsNotFound(err) {
			return "", fmt.Errorf("create sandbox: image %s: %w", spec.Image, runtime.ErrNotFound)
		}
		if cerrdefs.IsConflict(err) {
			// The engine's message would advise to remove the other container.
			return "", fmt.Errorf("create sandbox %s: %w", spec.Name, runtime.ErrConflict)
		}
		return "", e.startError("create sandbox", spec, err)
	}
	err = e.putFiles(ctx, id, spec.Files)
	if err == nil {
		err = e.start(ctx, id, stdin)
	}
	if err != nil {
		clean, cancel := cleanup(ctx)
		defer cancel()
		return "", errors.Join(e.startError("start sandbox", spec, err), e.Remove(clean, id))
	}
	return id, nil
}

func (e *api) start(ctx context.Context, id string, stdin io.Reader) error {
	// Attach before the start, so that the box cannot miss its input.
	att, err := e.hijacked(ctx, "", func() (types.HijackedResponse, error) {
		return e.c.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stdin: true})
	})
	if err != nil {
		return err
	}
	begin, cancel := context.WithTimeout(ctx, e.createTime)
	defer cancel()
	if err := e.c.ContainerStart(begin, id, container.StartOptions{}); err != nil {
		att.Close()
		return err
	}
	return e.handOver(ctx, att, stdin)
}

// handOver writes a document to a stream of standard input, and closes the stream.
func (e *api) handOver(ctx context.Context, att types.HijackedResponse, document io.Reader) error {
	passed := false
	defer func() {
		if !passed {
			att.Close()
		}
	}()
	// A box that dies without reading would block the write forever.
	stop := context.AfterFunc(ctx, att.Close)
	defer stop()
	if _, err := io.Copy(att.Conn, document); err != nil {
		return fmt.Errorf("send the work order: %w", err)
	}
	if err := att.CloseWrite(); err != nil {
		return fmt.Errorf("send the work order: %w", err)
	}
	// The stream ends when the engine has passed on everything. Closing it earlier is safe on a socket, but a proxy may cut off
	// the end of a large order.
	passed = true
	e.passing.Go(func() {
		defer att.Close()
		done := time.AfterFunc(handOverTime, att.Close)
		defer done.Stop()
		_, _ = io.Copy(io.Discard, att.Reader)
	})
	return nil
}

// Logs implements runtime.Runtime.
func (e *Engine) Logs(ctx context.Context, id string, o runtime.LogOptions) error {
	lo := container.LogsOptions{ShowStdout: o.Stdout != nil, ShowStderr: o.Stderr != nil, Follow: o.Follow}
	if !o.Since.IsZero() {
		lo.Since = fmt.Sprintf("%d.%09d", o.Since.Unix(), o.Since.Nanosecond())
	}
	if o.Tail > 0 {
		lo.Tail = strconv.Itoa(o.Tail)
	}
	r, err := e.opened(ctx, func(ctx context.Context) (io.ReadCloser, error) { return e.c.ContainerLogs(ctx, id, lo) })
	if err != nil {
		return e.wrap("read the sandbox's output", err)
	}
	defer r.Close()
	_, err = stdcopy.StdCopy(orDiscard(o.Stdout), orDiscard(o.Stderr), bufio.NewReaderSize(r, 64<<10))
	if err != nil {
		return fmt.Errorf("read the sandbox's output: %w", err)
	}
	return nil
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// Instances implements runtime.Runtime.
func (e *Engine) Instances(ctx context.Context, labels map[string]string) ([]runtime.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, e.listTime)
	defer cancel()
	f := filters.NewArgs()
	for k, v := range labels {
		if v == "" || k == workorder.LabelTask { // see Named
			f.Add("label", k)
		} else {
			f.Add("label", k+"="+v)
		}
	}
	list, err := e.c.ContainerList(ctx, container.ListOptions{All: true, Filters: f})
	if err != nil {
		return nil, e.wrap("list sandboxes", err)
	}
	boxes := make([]runtime.Instance, 0, len(list))
	for _, c := range list {
		b := runtime.Instance{
			ID:      c.ID,
			Labels:  c.Labels,
			State:   c.State,
			Status:  c.Status,
			Created: time.Unix(c.Created, 0),
			Network: networkOf(c.NetworkSettings),
		}
		if len(c.Names) > 0 {
			b.Name = strings.TrimPrefix(c.Names[0], "/")
		}
		if b = b.Named(); !b.Has(labels) {
			continue
		}
		if b.Running() {
			err := e.refresh(ctx, &b)
			switch {
			case cerrdefs.IsNotFound(err): // it was removed meanwhile
				continue
			case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded): // busy with this one: it stays as listed
			case err != nil:
				return nil, e.wrap("inspect sandbox", err)
			}
		}
		boxes = append(boxes, b)
	}
	return boxes, nil
}

// refresh inspects a container that is listed as running: an engine lists the state on its disk, so that on a full disk it
// lists ended containers as running forever. An engine that lists may not answer about a container for minutes, for example
// while it unmounts the container's files on a busy disk.
func (e *api) refresh(ctx context.Context, b *runtime.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, e.refreshTime)
	defer cancel()
	c, err := e.c.ContainerInspect(ctx, b.ID)
	if err != nil {
		return err
	}
	if c.ContainerJSONBase != nil && c.State != nil && c.State.Status != b.State {
		b.State = c.State.Status
		b.Status = fmt.Sprintf("%s (%d)", c.State.Status, c.State.ExitCode)
	}
	return nil
}

// CopyOut implements runtime.Runtime.
func (e *Engine) CopyOut(ctx context.Context, id, path string) (io.ReadCloser, error) {
	r, err := e.opened(ctx, func(ctx context.Context) (io.ReadCloser, error) {
		r, _, err := e.c.CopyFromContainer(ctx, id, path)
		return r, err
	})
	if err != nil {
		return nil, e.wrap("copy "+path+" out of the sandbox", err)
	}
	return r, nil
}

// Stop implements runtime.Runtime.
func (e *Engine) Stop(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+stopSlack)
	defer cancel()
	var err error
	if grace <= 0 {
		err = e.c.ContainerKill(ctx, id, "KILL")
	} else {
		if grace >= workorder.LongStop {
			// Without the signal a box lands within its default grace.
			_ = e.c.ContainerKill(ctx, id, workorder.LongStopSignal)
		}
		secs := int((grace + time.Second - 1) / time.Second)
		err = e.c.ContainerStop(ctx, id, container.StopOptions{Timeout: &secs})
	}
	if err == nil || cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) && strings.Contains(err.Error(), "not running") {
		return nil
	}
	return e.wrap("stop sandbox", err)
}

func (e *api) Remove(ctx context.Context, id string) error {
	end, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	err := e.c.ContainerRemove(end, id, container.RemoveOptions{RemoveVolumes: true, Force: true})
	if err == nil || cerrdefs.IsNotFound(err) {
		return nil
	}
	if cerrdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress") {
		err = e.gone(ctx, id)
	}
	return e.wrap("remove sandbox", err)
}

// gone waits for a removal by another process: until its end the box is listed and its name is in use.
func (e *api) gone(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	for {
		_, err := e.c.ContainerInspect(ctx, id)
		if cerrdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(removePoll):
		}
	}
}

func (e *api) wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	if d := denied(e.host, err); d != nil {
		return fmt.Errorf("%s: %w", doing, d) // the client's text adds nothing
	}
	switch {
	case client.IsErrConnectionFailed(err), errors.Is(err, context.DeadlineExceeded), isRefused(err):
		return fmt.Errorf("%s at %s: %w: %w", doing, e.host, runtime.ErrUnavailable, err)
	case cerrdefs.IsNotFound(err), isRemoved(err):
		return fmt.Errorf("%s: %w: %w", doing, runtime.ErrNotFound, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// isRemoved matches the untyped errors about a container that another program removes.
func isRemoved(err error) bool {
	s := err.Error()
	return strings.Contains(s, "dead or marked for removal") ||
		strings.Contains(s, "RWLayer of container") && strings.Contains(s, "unexpectedly nil")
}

// isRefused matches untyped errors of a broken or refused connection by their text.
func isRefused(err error) bool {
	s := err.Error()
	return strings.Contains(s, "connection refused") || strings.Contains(s, "connection reset") ||
		strings.Contains(s, "EOF") || strings.Contains(s, "permission denied while trying to connect")
}

// startError adds runtime.ErrIsolation if the OCI runtime or engine refused the settings. The texts were seen on hosts with
// reduced capabilities.
func (e *api) startError(doing string, s runtime.ContainerSpec, err error) error {
	msg := strings.ToLower(err.Error()) // engines differ in the case of the first letter
	for _, sign := range refusals {
		if !strings.Contains(msg, sign) {
			continue
		}
		how := "--isolation " + s.Isolation
		if s.OCIRuntime != "" {
			how += " --oci-runtime " + s.OCIRuntime
		}
		return fmt.Errorf("%s: %w (%s): %w", doing, runtime.ErrIsolation, how, err)
	}
	return e.wrap(doing, err)
}

var refusals = []string{
	"unable to apply caps", "unknown or invalid runtime name", "unknown runtime specified", "apply apparmor",
	"invalid security option", "unknown security option", "invalid --security-opt", "gathering device information",
	"error setting cgroup", "privileged mode is incompatible",
}

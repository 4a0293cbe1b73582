package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// sandboxCaps are all capabilities of a standalone sandbox: the engine's defaults, which packages need, without NET_RAW (forged packets),
// MKNOD (device nodes), SETFCAP (file capabilities) and AUDIT_WRITE (the host's audit log). Commands of users other than root have none.
var sandboxCaps = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// nestedCaps are the additional capabilities of a guest that creates nested sandboxes: it mounts, starts a loopback and
// creates device nodes. Commands in a nested sandbox have no capability.
var nestedCaps = []string{"SYS_ADMIN", "NET_ADMIN", "MKNOD"}

const sandboxStop = 10 // seconds; the guest kills its commands at once

const maxDialSaid = 4 << 10 // bytes of the dialer's error

var (
	_ runtime.SandboxRuntime  = (*Sandboxes)(nil)
	_ runtime.ContainerEngine = (*Engine)(nil)
)

// Sandboxes are the standalone sandboxes in containers of an engine.
type Sandboxes struct{ *Engine }

var (
	_ runtime.ImageEnsurer = (*Sandboxes)(nil)
	_ runtime.Renewer      = (*Sandboxes)(nil)
)

// sandboxConfig translates a spec. Its golden test shows the sandbox's rights.
func sandboxConfig(s runtime.SandboxSpec, volumes map[string]struct{}) (*container.Config, *container.HostConfig) {
	stop := sandboxStop
	cfg := &container.Config{
		Image: s.Image, Labels: s.Labels, Hostname: "sandbox",
		User: "0:0", Entrypoint: []string{wire.GuestFile, "init"}, Cmd: []string{}, StopTimeout: &stop,
		// The image's signal and health check are for the image's program.
		StopSignal: "SIGTERM", Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	hc := &container.HostConfig{
		Runtime: s.OCIRuntime, AutoRemove: s.Throwaway,
		CapDrop: []string{"ALL"}, CapAdd: sandboxCaps, SecurityOpt: []string{"no-new-privileges"},
		MaskedPaths:   append([]string{"/sys/devices/virtual/powercap", "/sys/firmware"}, proc.MaskedPaths...), // older engines hide fewer
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
		CgroupnsMode:  container.CgroupnsModePrivate,
		Resources:     container.Resources{Memory: s.MemoryBytes, MemorySwap: s.MemoryBytes, NanoCPUs: int64(s.CPUs * 1e9)},
	}
	if s.Config.Nested != nil {
		hc.CapAdd = append(slices.Clone(sandboxCaps), nestedCaps...)
		// The engine's AppArmor profile does not allow mounts.
		hc.SecurityOpt = append(hc.SecurityOpt, "apparmor=unconfined")
	}
	if s.PIDs > 0 {
		hc.PidsLimit = &s.PIDs
	}
	if s.NetworkNone {
		hc.NetworkMode = "none"
	}
	for _, m := range s.Mounts {
		// A bind of type mount fails on a missing path; the engine would otherwise create a directory of root.
		hc.Mounts = append(hc.Mounts, mount.Mount{
			Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		})
	}
	// Created here and not by the image's VOLUME, so that gc finds them by our labels if the container is removed without them.
	for _, at := range slices.Sorted(maps.Keys(volumes)) {
		at = path.Join("/", at) // an image may have a relative path, which a mount must not have
		if !slices.ContainsFunc(hc.Mounts, func(m mount.Mount) bool { return path.Clean(m.Target) == at }) {
			hc.Mounts = append(hc.Mounts, mount.Mount{Type: mount.TypeVolume, Target: at, VolumeOptions: &mount.VolumeOptions{Labels: s.Labels}})
		}
	}
	return cfg, hc
}

// Capabilities implements runtime.SandboxRuntime.
func (e *Sandboxes) Capabilities(ctx context.Context) ([]runtime.Capability, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if _, err := e.c.Ping(ctx); err != nil {
		return nil, e.wrap("contact engine", err)
	}
	all := []runtime.Capability{
		runtime.CapImage, runtime.CapUser, runtime.CapPersistent, runtime.CapNetworkNone, runtime.CapNetworkProxy, runtime.CapNetworkFull,
		runtime.CapNetworkUpdate, runtime.CapMemory, runtime.CapCPUs, runtime.CapPIDs, runtime.CapOCIRuntime,
		runtime.CapSnapshots, runtime.CapRepository, runtime.CapNested,
	}
	// Mounts need the host's directories; the virtual machine of a desktop engine has those of its user.
	if strings.HasPrefix(e.host, "unix://") || strings.HasPrefix(e.host, "npipe://") {
		all = append(all, runtime.CapMounts)
	}
	return all, nil
}

// Create implements runtime.SandboxRuntime.
func (e *Sandboxes) Create(ctx context.Context, s runtime.SandboxSpec) (string, error) {
	if s.OCIRuntime != "" {
		info, err := e.Info(ctx)
		if err != nil {
			return "", err
		}
		if !slices.Contains(info.Runtimes, s.OCIRuntime) {
			return "", fmt.Errorf(
				"%w: the engine has no OCI runtime %q, only %s", runtime.ErrIsolation, s.OCIRuntime,
				strings.Join(info.Runtimes, ", "),
			)
		}
	}
	img, err := e.image(ctx, s.Image)
	if cerrdefs.IsNotFound(err) {
		return "", fmt.Errorf("create the sandbox: image %s: %w", s.Image, runtime.ErrNotFound)
	}
	if err != nil {
		return "", e.wrap("inspect image "+s.Image, err)
	}
	if s.Config.User == "" && img.Config != nil {
		s.Config.User = img.Config.User
	}
	guest, err := s.Guest(ctx, img.Architecture)
	if err != nil {
		return "", fmt.Errorf("create the sandbox from image %s: %w", s.Image, err)
	}
	held, config, err := runtime.Hold(s.Mounts, s.Config)
	if err != nil {
		return "", fmt.Errorf("create the sandbox: %w", err)
	}
	defer held.Close()
	s.Config = config
	var volumes map[string]struct{}
	if img.Config != nil {
		volumes = img.Config.Volumes
	}
	cfg, hc := sandboxConfig(s, volumes)
	id, err := e.create(ctx, func(ctx context.Context) (container.CreateResponse, error) {
		return e.c.ContainerCreate(ctx, cfg, hc, nil, nil, s.Name)
	})
	if cerrdefs.IsConflict(err) {
		return "", fmt.Errorf("create the sandbox: %w", runtime.ErrConflict)
	}
	if err != nil {
		return "", e.createError(s, err)
	}
	begin, cancel := context.WithTimeout(ctx, e.createTime)
	defer cancel()
	if err = e.putGuest(begin, id, guest, s.Config); err == nil {
		err = e.c.ContainerStart(begin, id, container.StartOptions{})
	}
	if err != nil {
		clean, cancel := cleanup(ctx)
		defer cancel()
		return "", errors.Join(e.createError(s, err), e.Remove(clean, id))
	}
	return id, nil
}

// putGuest writes the guest and its configuration into a stopped container. A command of root may have replaced the guest's
// directory by a link, in the container or in the container of its snapshot.
func (e *Sandboxes) putGuest(ctx context.Context, id string, guest []byte, c wire.Config) error {
	st, err := e.c.ContainerStatPath(ctx, id, wire.GuestDir)
	if err != nil && !cerrdefs.IsNotFound(err) {
		return err
	}
	if err == nil && (!st.Mode.IsDir() || st.LinkTarget != "") {
		return fmt.Errorf("%s in the sandbox is not a directory any longer: recreate the sandbox with: sandbox-agent reset", wire.GuestDir)
	}
	files, err := guestFiles(guest, c)
	if err != nil {
		return err
	}
	return e.c.CopyToContainer(ctx, id, "/", files, container.CopyToContainerOptions{})
}

// Renew implements runtime.Renewer.
func (e *Sandboxes) Renew(ctx context.Context, id string, s runtime.SandboxSpec) error {
	const doing = "restart the sandbox"
	ctx, cancel := context.WithTimeout(ctx, e.createTime)
	defer cancel()
	in, err := e.c.ContainerInspect(ctx, id)
	if err != nil {
		return e.wrap(doing, err)
	}
	if in.State == nil || in.State.Status != container.StateExited {
		return nil
	}
	img, err := e.c.ImageInspect(ctx, in.Image)
	if err != nil {
		return e.wrap(doing, err)
	}
	if s.Config.User == "" && img.Config != nil {
		s.Config.User = img.Config.User
	}
	guest, err := s.Guest(ctx, img.Architecture)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	held, config, err := runtime.Hold(s.Mounts, s.Config)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer held.Close()
	if err := e.putGuest(ctx, id, guest, config); err != nil {
		return e.wrap(doing, err)
	}
	return nil
}

// createError adds runtime.ErrIsolation if the engine does not have the OCI runtime.
func (e *Sandboxes) createError(s runtime.SandboxSpec, err error) error {
	if s.OCIRuntime != "" && strings.Contains(strings.ToLower(err.Error()), "runtime") {
		return fmt.Errorf("create the sandbox with OCI runtime %s: %w: %w", s.OCIRuntime, runtime.ErrIsolation, err)
	}
	return e.wrap("create the sandbox", err)
}

// guestFiles returns the guest's directory as a tar stream. Only root can read it.
func guestFiles(guest []byte, c wire.Config) (io.Reader, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	rel := func(p string) string { return strings.TrimPrefix(path.Clean(p), "/") }
	err = w.WriteHeader(&tar.Header{Name: rel(wire.GuestDir) + "/", Mode: 0o700, Typeflag: tar.TypeDir})
	for _, f := range []struct {
		name    string
		mode    int64
		content []byte
	}{{wire.GuestFile, 0o500, guest}, {wire.ConfigFile, 0o600, config}} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: rel(f.name), Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}))
		_, werr := w.Write(f.content)
		err = errors.Join(err, werr)
	}
	return &b, errors.Join(err, w.Close())
}

// Start implements runtime.SandboxRuntime.
func (e *Sandboxes) Start(ctx context.Context, id string) error {
	const doing = "restart the sandbox"
	ctx, cancel := context.WithTimeout(ctx, e.createTime)
	defer cancel()
	in, err := e.c.ContainerInspect(ctx, id)
	if err != nil {
		return e.wrap(doing, err)
	}
	if in.State != nil && in.State.Status == container.StateRemoving {
		return fmt.Errorf("%s: %w: it is being removed", doing, runtime.ErrNotFound)
	}
	if in.State != nil && in.State.Status == container.StateCreated { // its guest may be missing or incomplete
		return fmt.Errorf("%s: %w", doing, runtime.ErrNotStarted)
	}
	err = e.c.ContainerStart(ctx, id, container.StartOptions{})
	return e.unlessState(ctx, doing, id, "running", err)
}

// Stream implements runtime.SandboxRuntime.
func (e *Sandboxes) Stream(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	return e.ExecStream(ctx, id, []string{wire.GuestFile, "dial"})
}

// StartWithInput implements runtime.ContainerEngine.
func (e *Engine) StartWithInput(ctx context.Context, id string, stdin io.Reader) error {
	if err := e.start(ctx, id, stdin); err != nil {
		return e.wrap("restart the sandbox", err)
	}
	return nil
}

// ExecStream implements runtime.ContainerEngine.
func (e *Engine) ExecStream(ctx context.Context, id string, argv []string) (io.ReadWriteCloser, error) {
	const doing = "connect to the sandbox's guest"
	_, conn, err := e.execStream(
		ctx, id, container.ExecOptions{Cmd: argv, User: "0:0", AttachStdin: true, AttachStdout: true, AttachStderr: true},
	)
	if err != nil {
		return nil, e.wrap(doing, err)
	}
	out, feed := io.Pipe()
	go func() {
		said := &proc.Prefix{Max: maxDialSaid}
		_, err := stdcopy.StdCopy(&spoken{out: feed, said: said}, said, conn.Reader)
		if text := strings.TrimSpace(said.String()); err == nil && text != "" {
			err = errors.New(text)
		}
		feed.CloseWithError(err) // nil means EOF
	}()
	return &stream{conn: conn.Conn, out: out}, nil
}

// stream is the standard input and output of a command in a container.
type stream struct {
	conn net.Conn
	out  *io.PipeReader
}

func (s *stream) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.conn.Write(p) }

func (s *stream) Close() error {
	// The dialer exits at the end of its input; the engine reports a closed connection late.
	_ = s.conn.SetWriteDeadline(time.Now().Add(time.Second))
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	return errors.Join(s.out.Close(), s.conn.Close())
}

// spoken separates the guest's data from an error text of the engine on the same stream, if it cannot run the dialer. The guest
// begins with an HTTP/2 frame, whose first length byte is 0.
type spoken struct {
	out, said io.Writer
	to        io.Writer // nil before the first byte
}

func (s *spoken) Write(p []byte) (int, error) {
	if s.to == nil && len(p) > 0 {
		s.to = s.out
		if p[0] != 0 {
			s.to = s.said
		}
	}
	if s.to == nil {
		return 0, nil
	}
	return s.to.Write(p)
}

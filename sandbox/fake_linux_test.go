package sandbox

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/wireserver"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// fake is an engine whose sandboxes are folders of this machine, each with a real guest.
type fake struct {
	t        *testing.T
	dir      string
	identity string
	mu       sync.Mutex
	next     int
	boxes    map[string]*fakeBox
	images   map[string]runtime.Snapshot // by name
	volumes  []runtime.Volume            // that no sandbox has
	stands   int
	away     error // of Info
	stuck    error // of Remove
	stood    func()
}

type fakeBox struct {
	runtime.Instance
	dir, image string
	end        func()
	removing   int // how often it is still listed until its removal is done
}

var (
	_ runtime.SandboxRuntime = (*fake)(nil)
	_ runtime.PolicySetter   = (*fake)(nil)
	_ runtime.Snapshotter    = (*fake)(nil)
)

// newFake is an engine, and newManager one of its users with a state folder.
func newFake(t *testing.T) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // a socket's path is short, a test's folder is not
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, dir: dir, identity: "here", boxes: map[string]*fakeBox{}, images: map[string]runtime.Snapshot{}}
	t.Cleanup(func() {
		for _, b := range f.boxes {
			b.stop()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fake) newManager(state string) *Manager {
	cr := &creator{lookup: lookup{
		records: records{state, sandboxstore.New(state)},
		all:     backends{{RuntimeContainer, namePrefix, func() (runtime.SandboxRuntime, error) { return f, nil }}},
	}}
	cr.creator = cr
	return &Manager{cr, func() error { return nil }}
}

func (b *fakeBox) stop() {
	if b.end != nil {
		b.end()
		b.end = nil
	}
	b.State = "exited"
}

func (f *fake) start(b *fakeBox) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	socket := filepath.Join(f.dir, b.ID+".sock")
	_ = os.Remove(socket)
	l, err := (&net.ListenConfig{}).Listen(context.WithoutCancel(f.t.Context()), "unix", socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	served := make(chan error, 1)
	go func() {
		served <- wireserver.New(wireserver.Config{
			Dir: b.dir, Env: os.Environ(), Self: self, Reap: []string{"reap"},
			OOMKills: func() int { return 0 },
		}).Serve(ctx, l)
	}()
	b.State = "running"
	b.end = func() {
		cancel()
		if err := <-served; err != nil {
			f.t.Error(err)
		}
	}
	return nil
}

func (f *fake) get(id string) (*fakeBox, error) {
	b, ok := f.boxes[id]
	if !ok || b.removing > 0 {
		return nil, fmt.Errorf("sandbox %s: %w", id, runtime.ErrNotFound)
	}
	return b, nil
}

func (f *fake) Info(context.Context) (runtime.Info, error) {
	return runtime.Info{ID: f.identity, Host: "unix:///" + f.identity}, f.away
}

func (f *fake) Capabilities(context.Context) ([]runtime.Capability, error) {
	return []runtime.Capability{
		runtime.CapImage, runtime.CapUser, runtime.CapNetworkFull, runtime.CapNetworkNone, runtime.CapNetworkUpdate,
		runtime.CapSnapshots, runtime.CapMemory, runtime.CapCPUs,
		runtime.CapPIDs, runtime.CapMounts,
	}, nil
}

func (f *fake) Create(_ context.Context, s runtime.SandboxSpec) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, ok := f.images[s.Image]
	if !ok && s.Image != "i" {
		return "", fmt.Errorf("image %s: %w", s.Image, runtime.ErrNotFound)
	}
	for _, b := range f.boxes {
		if b.Name == s.Name {
			return "", runtime.ErrConflict
		}
	}
	f.next++
	f.stands++
	if f.stood != nil {
		f.stood()
	}
	b := &fakeBox{Instance: runtime.Instance{
		ID: fmt.Sprint(f.next), Name: s.Name, Labels: s.Labels, Created: time.Now(),
		Network: workorder.NetworkFull,
	}, image: s.Image}
	if s.NetworkNone {
		b.Network = workorder.NetworkNone
	}
	b.dir = filepath.Join(f.dir, b.ID)
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return "", err
	}
	if ok {
		if err := os.CopyFS(b.dir, os.DirFS(from.ID)); err != nil {
			return "", err
		}
	}
	f.boxes[b.ID] = b
	return b.ID, f.start(b)
}

func (f *fake) Start(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.get(id)
	if err != nil || b.Running() {
		return err
	}
	return f.start(b)
}

func (f *fake) Stream(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	f.mu.Lock()
	b, err := f.get(id)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(f.dir, b.ID+".sock"))
}

func (f *fake) Instances(_ context.Context, labels map[string]string) (list []runtime.Instance, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, b := range f.boxes {
		if !has(b.Labels, labels) {
			continue
		}
		list = append(list, b.Instance)
		if b.removing--; b.removing == 0 {
			b.stop()
			delete(f.boxes, id)
		}
	}
	return list, nil
}

func has(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || v != "" && got != v {
			return false
		}
	}
	return true
}

func (f *fake) Logs(context.Context, string, runtime.LogOptions) error { return nil }

func (f *fake) Stop(_ context.Context, id string, _ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.get(id)
	if err == nil {
		b.stop()
	}
	return nil
}

func (f *fake) Remove(_ context.Context, id string) error {
	if f.stuck != nil {
		return f.stuck
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, err := f.get(id); err == nil {
		b.stop()
		delete(f.boxes, id)
	}
	return nil
}

// lose removes a sandbox as somebody else would: without its volume.
func (f *fake) lose(t *testing.T, name string) {
	t.Helper()
	boxes, err := f.Instances(t.Context(), map[string]string{labelName: name})
	if err != nil || len(boxes) != 1 {
		t.Fatalf("%v, %v", boxes, err)
	}
	if err := f.Remove(t.Context(), boxes[0].ID); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.volumes = append(f.volumes, runtime.Volume{Name: "of-" + name, Labels: boxes[0].Labels, Created: time.Now().Add(-time.Hour)})
}

func (f *fake) Volumes(_ context.Context, labels map[string]string) (list []runtime.Volume, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.volumes {
		if has(v.Labels, labels) {
			list = append(list, v)
		}
	}
	return list, nil
}

func (f *fake) RemoveVolume(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.volumes = slices.DeleteFunc(f.volumes, func(v runtime.Volume) bool { return v.Name == name })
	return nil
}

func (f *fake) SetNetwork(_ context.Context, id string, n workorder.NetworkPolicy) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.get(id)
	if err == nil {
		b.Network = n.Mode
	}
	return err
}

func (f *fake) Snapshot(_ context.Context, id, ref string, labels map[string]string) (runtime.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.get(id)
	if err != nil {
		return runtime.Snapshot{}, err
	}
	f.next++
	s := runtime.Snapshot{
		Ref: ref, ID: filepath.Join(f.dir, fmt.Sprintf("image-%d", f.next)), Labels: maps.Clone(b.Labels),
		Created: time.Now(), Bytes: 1,
	}
	maps.Copy(s.Labels, labels)
	s.Labels[labelName] = ""
	if err := os.CopyFS(s.ID, os.DirFS(b.dir)); err != nil {
		return s, err
	}
	if old, ok := f.images[ref]; ok { // it has no name any more
		old.Ref = old.ID
		f.images[old.ID] = old
	}
	f.images[ref] = s
	return s, nil
}

func (f *fake) Snapshots(_ context.Context, labels map[string]string) (list []runtime.Snapshot, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.images {
		if has(s.Labels, labels) {
			list = append(list, s)
		}
	}
	return list, nil
}

func (f *fake) RemoveSnapshot(_ context.Context, ref string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.images {
		if name != ref && s.ID != ref {
			continue
		}
		for _, b := range f.boxes {
			if b.image == name {
				return runtime.ErrInUse
			}
		}
		delete(f.images, name)
		return nil
	}
	return runtime.ErrNotFound
}

// run runs a script and returns what it prints.
func run(t *testing.T, sb *Sandbox, script string) string {
	t.Helper()
	r, err := sb.Run(t.Context(), Command{Argv: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(r.Stdout))
}

func find(t *testing.T, m *Manager, name string) *Sandbox {
	t.Helper()
	sb, err := m.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sb.Close() })
	return sb
}

func create(t *testing.T, m *Manager, s Spec) *Sandbox {
	t.Helper()
	s.Image = "i"
	sb, err := m.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sb.Close() })
	return sb
}

func events(t *testing.T, m *Manager, name string) string {
	t.Helper()
	all, err := m.creator.kept.History(name)
	if err != nil {
		t.Fatal(err)
	}
	words := make([]string, 0, len(all))
	for _, e := range all {
		words = append(words, e.Event)
	}
	return strings.Join(words, " ")
}

func states(t *testing.T, m *Manager) string {
	t.Helper()
	all, err := m.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	words := make([]string, 0, len(all))
	for _, i := range all {
		words = append(words, i.Name+" "+string(i.State))
	}
	return strings.Join(words, ", ")
}

//go:build e2e

// Package e2e runs the built CLI against a real engine: real boxes, real inner
// engines, real git servers. Every test starts the program as a user would and
// looks at what a user would see: exit code, output, files, the remote, the engine.
//
// It needs bin/sandbox-agent (make build), a Docker engine and root. `make test`
// provides all of it.
package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/boxes"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Images of services, built once from the same base as the box, because no
// registry can be counted on.
const (
	redisImage    = "sandbox-agent-e2e/redis"
	postgresImage = "sandbox-agent-e2e/postgres"
)

// bin is the program under test; eng is the engine it uses; scratch is a folder
// that is removed at the end; counted are the containers that tests start.
var (
	bin, scratch string
	eng          *client.Client
	counted      = boxes.New()
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx := context.Background()
	var err error
	if scratch, err = os.MkdirTemp("", "sandbox-agent-e2e-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(scratch)
	if bin, err = filepath.Abs("../bin/sandbox-agent"); err != nil {
		return 1, err
	}
	if _, err := os.Stat(bin); err != nil {
		return 1, fmt.Errorf("%w; run `make build` first", err)
	}
	if eng, err = client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()); err != nil {
		return 1, err
	}
	before, err := inventory(ctx)
	if err != nil {
		return 1, fmt.Errorf("no engine answers: %w", err)
	}
	if err := serviceImages(ctx); err != nil {
		return 1, err
	}
	// Once, here: tests that run at the same time would each build it.
	if err := boxImage(ctx); err != nil {
		return 1, err
	}
	done := counted.Follow(ctx, eng)
	code := m.Run()
	done()
	counted.Print(os.Stdout)
	after, err := inventory(ctx)
	if err != nil {
		return code, err
	}
	if leaked := after.minus(before); leaked != "" {
		return code, fmt.Errorf("left behind on the engine:\n%s", leaked)
	}
	return code, nil
}

// things are what a run could leave on the engine.
type things map[string]string

func inventory(ctx context.Context) (things, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	got := things{}
	label := filters.NewArgs(filters.Arg("label", workorder.LabelTask))
	cs, err := eng.ContainerList(ctx, container.ListOptions{All: true, Filters: label})
	if err != nil {
		return nil, err
	}
	sandboxes, err := eng.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "sandbox-agent.sandbox"))})
	if err != nil {
		return nil, err
	}
	for _, c := range append(cs, sandboxes...) {
		got["container "+c.ID] = strings.Join(c.Names, ",") + " " + c.Status
	}
	vs, err := eng.VolumeList(ctx, volume.ListOptions{Filters: label})
	if err != nil {
		return nil, err
	}
	for _, v := range vs.Volumes {
		got["volume "+v.Name] = v.CreatedAt
	}
	ns, err := eng.NetworkList(ctx, network.ListOptions{Filters: label})
	if err != nil {
		return nil, err
	}
	for _, n := range ns {
		got["network "+n.ID] = n.Name
	}
	pids, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, p := range pids {
		if cmdline, err := os.ReadFile(p); err == nil && strings.HasPrefix(string(cmdline), bin+"\x00") {
			got["process "+filepath.Dir(p)] = strings.ReplaceAll(string(cmdline), "\x00", " ")
		}
	}
	return got, nil
}

func (t things) minus(other things) string {
	var b strings.Builder
	for k, v := range t {
		if _, ok := other[k]; !ok {
			fmt.Fprintf(&b, "  %s (%s)\n", k, v)
		}
	}
	return b.String()
}

// boxImage builds the box's image with all parts when it is missing: it fits every test.
func boxImage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
	defer cancel()
	if err := proc.Run(ctx, proc.Spec{Argv: []string{bin, "image", "build", "--with", "all"}, Stdout: os.Stderr, Stderr: os.Stderr}); err != nil {
		return fmt.Errorf("build the box's image: %w", err)
	}
	return nil
}

// aptInstall is the line of a Dockerfile that installs packages.
const aptInstall = "RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends %s && rm -rf /var/lib/apt/lists/*\n"

// serviceImages builds the images of services that tests use.
func serviceImages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	base, err := provision.EnsureBase(ctx, eng, provision.Options{Version: version.Get().Version, StateDir: scratch})
	if err != nil {
		return fmt.Errorf("base of the service images: %w", err)
	}
	for name, dockerfile := range map[string]string{
		redisImage: fmt.Sprintf(aptInstall, "redis-server") +
			"EXPOSE 6379\nCMD [\"redis-server\", \"--protected-mode\", \"no\", \"--save\", \"\", \"--appendonly\", \"no\"]\n",
		// Like the official image: a data directory that is made at the first start, root first.
		postgresImage: fmt.Sprintf(aptInstall, "postgresql") +
			"EXPOSE 5432\nSTOPSIGNAL SIGINT\n" +
			"CMD [\"sh\", \"-ec\", \"cd /tmp; B=$(ls -d /usr/lib/postgresql/*/bin); D=/var/lib/postgresql/e2e; " +
			"[ -d $D ] || su postgres -c \\\"$B/initdb -A trust -N -D $D\\\" >/dev/null; echo host all all all trust >>$D/pg_hba.conf; " +
			"exec su postgres -c \\\"exec $B/postgres -D $D -c listen_addresses='*' -c fsync=off\\\"\"]\n",
	} {
		if _, err := eng.ImageInspect(ctx, name); err == nil {
			continue
		}
		if err := buildImage(ctx, name, "FROM "+base+"\n"+dockerfile); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	return nil
}

func buildImage(ctx context.Context, name, dockerfile string) error {
	var b bytes.Buffer
	writeTar(&b, "Dockerfile", 0o644, []byte(dockerfile))
	r, err := eng.ImageBuild(ctx, &b, build.ImageBuildOptions{Tags: []string{name}, Remove: true, ForceRemove: true, NetworkMode: "host"})
	if err != nil {
		return err
	}
	defer r.Body.Close()
	out, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if bytes.Contains(out, []byte(`"errorDetail"`)) {
		return fmt.Errorf("build failed: %s", out[max(0, len(out)-2000):])
	}
	return nil
}

// ours lists the containers of a task.
func ours(t *testing.T, id string) []container.Summary {
	t.Helper()
	cs, err := eng.ContainerList(t.Context(), container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", workorder.LabelTask+"="+id)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// writeTar writes an archive of one file; writing to memory cannot fail.
func writeTar(b *bytes.Buffer, name string, mode int64, content []byte) {
	w := tar.NewWriter(b)
	_ = w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))})
	_, _ = w.Write(content)
	_ = w.Close()
}

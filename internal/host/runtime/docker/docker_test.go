package docker

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestHostConfig(t *testing.T) {
	base := runtime.ContainerSpec{
		Name: "sandbox-agent-T-A1B2C3D4", Image: "sandbox-agent:1", CacheVolume: "sandbox-agent-cache",
		Labels: map[string]string{workorder.LabelTask: "T-A1B2C3D4", workorder.LabelOwner: "me@here:/state", workorder.LabelProject: "p"},
	}
	for name, change := range map[string]func(*runtime.ContainerSpec){
		"confined": func(s *runtime.ContainerSpec) {
			s.Isolation, s.Fuse, s.Seccomp = workorder.IsolationConfined, true, true
		},
		"confined-v2-limits": func(s *runtime.ContainerSpec) {
			s.Isolation, s.CgroupV2, s.Seccomp = workorder.IsolationConfined, true, true
			s.Limits = workorder.Limits{MemoryBytes: 4 << 30, CPUs: 1.5, PIDs: 512}
		},
		"dns": func(s *runtime.ContainerSpec) {
			s.Isolation, s.DNS = workorder.IsolationConfined, []string{"192.0.2.53", "2001:db8::53"}
		},
		"privileged":  func(s *runtime.ContainerSpec) { s.Isolation = workorder.IsolationPrivileged },
		"oci-runtime": func(s *runtime.ContainerSpec) { s.Isolation, s.OCIRuntime = workorder.IsolationConfined, "sysbox-runc" },
	} {
		t.Run(name, func(t *testing.T) {
			s := base
			change(&s)
			cfg, hc, err := hostConfig(s)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, cfg, hc)
			if len(hc.Binds) != 0 {
				t.Errorf("binds: %v", hc.Binds)
			}
		})
	}
	if _, _, err := hostConfig(runtime.ContainerSpec{Isolation: "loose"}); err == nil {
		t.Error("an isolation that is not known was taken")
	}
}

// golden compares what a container may do with what is written down.
func golden(t *testing.T, name string, cfg *container.Config, hc *container.HostConfig) {
	t.Helper()
	got, err := json.MarshalIndent(struct {
		Config     *container.Config
		HostConfig *container.HostConfig
	}{cfg, hc}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "golden", name+".json")
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
		t.Errorf("what the box may do has changed (-want +got):\n%s", d)
	}
}

func TestStandConfig(t *testing.T) {
	volumes := map[string]struct{}{"/data": {}, "/mounted": {}}
	for name, s := range map[string]runtime.SandboxSpec{
		"stand":          {Image: "debian:trixie", Mounts: []runtime.Mount{{Source: "/src", Target: "/mounted"}}, Limits: runtime.Limits{MemoryBytes: 2 << 30, CPUs: 1.5, PIDs: 512}, NetworkNone: true, Labels: map[string]string{"sandbox-agent.sandbox": "dev"}},
		"stand-no-limit": {Image: "debian:trixie", Throwaway: true, OCIRuntime: "runsc"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, hc := sandboxConfig(s, volumes)
			golden(t, name, cfg, hc)
		})
	}
}

func TestCurrentEndpoint(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", `{"currentContext":"far"}`)
	far := fmt.Sprintf("%x", sha256.Sum256([]byte("far")))
	write(filepath.Join("contexts", "meta", far, "meta.json"), `{"Name":"far","Endpoints":{"docker":{"Host":"tcp://far:2376"}}}`)
	write(filepath.Join("contexts", "tls", far, "docker", "ca.pem"), "x")
	for _, c := range []struct {
		name string
		env  map[string]string
		want endpoint
		bad  bool
	}{
		{"nothing set", map[string]string{"HOME": t.TempDir()}, endpoint{}, false},
		{"DOCKER_HOST wins", map[string]string{"DOCKER_CONFIG": dir, "DOCKER_HOST": "unix:///x.sock"}, endpoint{host: "unix:///x.sock"}, false},
		{"current context", map[string]string{"DOCKER_CONFIG": dir}, endpoint{"tcp://far:2376", filepath.Join(dir, "contexts", "tls", far, "docker")}, false},
		{"default context by name", map[string]string{"DOCKER_CONFIG": dir, "DOCKER_CONTEXT": "default"}, endpoint{}, false},
		{"absent context", map[string]string{"DOCKER_CONFIG": dir, "DOCKER_CONTEXT": "none"}, endpoint{}, true},
		{"TLS by environment", map[string]string{"DOCKER_HOST": "tcp://x:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"}, endpoint{"tcp://x:2376", "/certs"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := currentEndpoint(func(k string) string { return c.env[k] })
			if (err != nil) != c.bad || got != c.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

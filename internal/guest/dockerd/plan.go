package dockerd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

type plan struct {
	version      string
	driver       string
	runtime      string
	remap        string
	cgroupParent string
	dataRoot     string
	runDir       string
	addr         addresses
	mtu          int
	dns          []string
}

// major returns the major version of, for example, "26.1.5+dfsg1"; 0 if there is none.
func major(version string) int {
	n, _, _ := strings.Cut(version, ".")
	i, _ := strconv.Atoi(n)
	return i
}

func (p plan) containerdSocket() string { return filepath.Join(p.runDir, "containerd.sock") }
func (p plan) configFile() string       { return filepath.Join(p.runDir, "daemon.json") }

// config returns the daemon's configuration file, in place of the image's. A build requests privileges inside a stream
// that the guard cannot read, so the daemon itself refuses them.
func (p plan) config() string {
	const builder = `"builder":{"entitlements":{"network-host":false,"security-insecure":false}}`
	if major(p.version) >= 23 {
		// The image store of containerd can neither shift owners nor use layers of a cache.
		return "{" + builder + `,"features":{"containerd-snapshotter":false}}` + "\n"
	}
	return "{" + builder + "}\n"
}

// dockerd returns the daemon's command line.
func (p plan) dockerd() []string {
	a := []string{
		"dockerd", "-H", "fd://",
		"--config-file", p.configFile(),
		"--containerd", p.containerdSocket(),
		"--data-root", p.dataRoot,
		"--exec-root", filepath.Join(p.runDir, "docker"),
		"--pidfile", filepath.Join(p.runDir, "docker.pid"),
		"-s", p.driver,
		// A rule of the egress package replaces these slow ones; the proxy then serves published ports.
		"--iptables=false", "--ip6tables=false", "--userland-proxy=true",
		"--bip", p.addr.bridge.String(),
		"--default-address-pool", fmt.Sprintf("base=%s,size=24", p.addr.pool),
		"--log-driver", "local", "--log-opt", "max-size=10m", "--log-opt", "max-file=2",
		// With the default of cgroup v1 an inner container would see its neighbours.
		"--default-cgroupns-mode", "private",
		// Services outlive a crash of the daemon, which is restarted behind the socket.
		"--live-restore",
	}
	if p.cgroupParent != "" {
		a = append(a, "--cgroup-parent", p.cgroupParent)
	}
	if p.remap != "" {
		a = append(a, "--userns-remap", p.remap)
	}
	if p.mtu > 0 {
		a = append(a, "--mtu", strconv.Itoa(p.mtu))
		if major(p.version) >= 24 {
			a = append(a, "--default-network-opt", fmt.Sprintf("bridge=com.docker.network.driver.mtu=%d", p.mtu))
		}
	}
	for _, d := range p.dns {
		a = append(a, "--dns", d)
	}
	if p.runtime != "" {
		a = append(a, "--add-runtime", p.runtime+"="+runtimePath(p.runtime), "--default-runtime", p.runtime)
	}
	if m := major(p.version); m > 0 && m < 23 {
		// Its default of -500 needs CAP_SYS_RESOURCE, which not every host can give.
		a = append(a, "--oom-score-adjust", "0")
	}
	return a
}

func runtimePath(name string) string {
	for d := range strings.SplitSeq(daemonPath, ":") {
		if st, err := os.Stat(filepath.Join(d, name)); err == nil && st.Mode().IsRegular() {
			return filepath.Join(d, name)
		}
	}
	return name
}

const daemonPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// containerdConfig restricts containerd to what dockerd needs, with its root in the data root.
func (p plan) containerdConfig() string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.nri.v1.nri",
]
[grpc]
  address = %q
  uid = 0
  gid = 0
`, filepath.Join(p.dataRoot, "containerd", "daemon"), filepath.Join(p.runDir, "containerd"), p.containerdSocket())
}

// environment returns the required variables of the daemons. The directories in first come first in PATH.
func environment(all []string, first ...string) []string {
	env := []string{"PATH=" + strings.Join(append(first, daemonPath), ":"), "HOME=/root"}
	for _, kv := range all {
		k, _, _ := strings.Cut(kv, "=")
		switch strings.ToUpper(k) {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR":
			env = append(env, kv)
		}
	}
	return env
}

package dockerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// fastRuntime starts a container in three quarters of the default's time.
const fastRuntime = "crun"

const trialName = "sandbox-agent-trial"

// runtime returns the fast OCI runtime if it can run a container here; "" means the daemon's default.
func (pr *prerequisites) runtime(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	uid, gid, err := pr.sys.remapIDs(pr.cfg.RemapUser)
	if err == nil {
		err = tryRuntime(ctx, fastRuntime, filepath.Join(pr.sys.path(pr.cfg.RunDir), "runtime-trial"), uid, gid)
	}
	switch {
	case err == nil:
		return fastRuntime
	case !errors.Is(err, fs.ErrNotExist):
		pr.note("%s is not used: %v", fastRuntime, err)
	}
	return ""
}

// tryRuntime runs `true` of the box's own /usr in a container like the inner engine's.
func tryRuntime(ctx context.Context, name, bundle string, uid, gid int) (err error) {
	if _, err := os.Stat(runtimePath(name)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bundle)) }()
	root := filepath.Join(bundle, "rootfs")
	for _, d := range []string{"usr", "dev", "proc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return fmt.Errorf("create trial container: %w", err)
		}
	}
	for _, l := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			return fmt.Errorf("create trial container: %w", err)
		}
	}
	conf, err := json.Marshal(trialContainer(uid, gid))
	if err != nil {
		return fmt.Errorf("create trial container: %w", err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), conf, 0o600); err != nil {
		return fmt.Errorf("create trial container: %w", err)
	}
	_, err = proc.Output(ctx, proc.Spec{
		Argv: []string{name, "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, trialName},
		Env:  environment(os.Environ()),
	})
	if err != nil {
		dropTrialCgroups()
	}
	return err
}

// dropTrialCgroups removes the groups of an interrupted trial.
func dropTrialCgroups() {
	for _, pattern := range []string{"/*/", "/"} {
		dirs, _ := filepath.Glob(cgroupRoot + pattern + trialName)
		for _, d := range dirs {
			_ = os.Remove(d) // an empty group is harmless
		}
	}
}

// trialContainer returns an OCI configuration with what can fail: a user namespace, a control group, a cgroup namespace.
func trialContainer(uid, gid int) map[string]any {
	type m = map[string]any
	spaces := []m{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "cgroup"}}
	linux := m{"cgroupsPath": "/" + trialName}
	if uid != 0 || gid != 0 {
		spaces = append(spaces, m{"type": "user"})
		linux["uidMappings"] = []m{{"containerID": 0, "hostID": uid, "size": 1}}
		linux["gidMappings"] = []m{{"containerID": 0, "hostID": gid, "size": 1}}
	}
	linux["namespaces"] = spaces
	return m{
		"ociVersion": "1.0.0",
		"process": m{
			"user": m{"uid": 0, "gid": 0}, "args": []string{"/usr/bin/true"}, "cwd": "/",
			"env": []string{"PATH=/usr/bin"}, "noNewPrivileges": true,
		},
		"root": m{"path": "rootfs", "readonly": true},
		"mounts": []m{
			{"destination": "/usr", "type": "bind", "source": "/usr", "options": []string{"bind", "ro"}},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/proc", "type": "proc", "source": "proc"},
		},
		"linux": linux,
	}
}

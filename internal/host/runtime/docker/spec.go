package docker

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// confinedCaps are all capabilities of a box; `make caps` tries each. Processes in inner containers have a user namespace with its
// own capabilities. These capabilities of the engine's default set are omitted, since nothing needs them: AUDIT_WRITE (the host's
// audit log), NET_BIND_SERVICE (an engine since 20.10 lets every user bind low ports), NET_RAW (forged packets) and SETPCAP.
var confinedCaps = []string{
	"CHOWN",        // the agent's home and work tree, layers of images, packages
	"DAC_OVERRIDE", // root's work in directories of the agent, and overlay mounts with files of other users
	"FOWNER",       // modes of the agent's files; packages set those of files whose owner they changed
	"FSETID",       // set-group-id of files in layers and packages, which is silently lost without it
	"KILL",         // ends the agent and its processes
	"MKNOD",        // device nodes in layers of images; on kernels before 5.8 also whiteouts of overlays
	"NET_ADMIN",    // the rules of the network policy, bridges of inner networks
	"SETFCAP",      // a user namespace whose map has root; programs with file capabilities in packages and layers
	"SETGID",       // becomes the agent
	"SETUID",       // becomes the agent; maps of inner containers
	"SYS_ADMIN",    // mounts and namespaces of the inner engine
	"SYS_CHROOT",   // the inner engine unpacks layers and copies files in a root of their own
	"SYS_PTRACE",   // enters the namespaces of inner containers, which run as another user; finds the process of a connection
}

// confinedSecurity lifts the filters that forbid an inner engine's ordinary work. Capabilities, the device cgroup and a filter
// of system calls confine the box.
func confinedSecurity(s runtime.ContainerSpec) ([]string, error) {
	filter := "unconfined"
	if s.Seccomp {
		b, err := json.Marshal(boxFilter(s.CgroupV2))
		if err != nil {
			return nil, fmt.Errorf("write the filter of system calls: %w", err)
		}
		filter = string(b)
	}
	return []string{"apparmor=unconfined", "seccomp=" + filter}, nil
}

// machineCalls change or read the whole machine. An inner engine does not need them. Mounts are missing here, since a filter
// does not see the names of file systems.
var machineCalls = []string{
	"acct", "clock_settime", "clock_settime64", "delete_module", "finit_module", "init_module", "ioperm", "iopl",
	"kexec_file_load", "kexec_load", "lookup_dcookie", "open_by_handle_at", "perf_event_open", "quotactl", "quotactl_fd",
	"settimeofday", "stime", "swapoff", "swapon", "syslog",
}

// boxFilter refuses machineCalls. With cgroup version 2 the inner engine's runtime needs bpf for each container's devices.
func boxFilter(cgroupV2 bool) seccompProfile {
	names := slices.Clone(machineCalls)
	if !cgroupV2 {
		names = append(names, "bpf")
	}
	return seccompProfile{
		DefaultAction: "SCMP_ACT_ALLOW",
		// Without their own row, programs of a machine's second instruction set would be killed.
		ArchMap: []seccompArch{
			{"SCMP_ARCH_X86_64", []string{"SCMP_ARCH_X86", "SCMP_ARCH_X32"}},
			{"SCMP_ARCH_AARCH64", []string{"SCMP_ARCH_ARM"}},
		},
		Syscalls: []seccompRule{{Names: names, Action: "SCMP_ACT_ERRNO"}},
	}
}

// seccompProfile is the format of Docker's --security-opt seccomp=FILE.
type seccompProfile struct {
	DefaultAction string        `json:"defaultAction"`
	ArchMap       []seccompArch `json:"archMap"`
	Syscalls      []seccompRule `json:"syscalls"`
}

type seccompArch struct {
	Architecture     string   `json:"architecture"`
	SubArchitectures []string `json:"subArchitectures"`
}

type seccompRule struct {
	Names  []string `json:"names"`
	Action string   `json:"action"`
}

// hostConfig translates a spec. Its golden test shows the rights of a box. It never makes a bind mount.
func hostConfig(s runtime.ContainerSpec) (*container.Config, *container.HostConfig, error) {
	stop := int(runtime.StopTimeout / time.Second)
	cfg := &container.Config{
		Image:       s.Image,
		Labels:      s.Labels,
		OpenStdin:   true,
		StdinOnce:   !s.Standby,
		AttachStdin: true,
		StopTimeout: &stop,
	}
	if len(s.Command) > 0 {
		cfg.Entrypoint = s.Command
	}
	pids := s.Limits.AgentPIDs() + workorder.ReservedPIDs
	hc := &container.HostConfig{
		Runtime:    s.OCIRuntime,
		AutoRemove: s.Throwaway,
		DNS:        s.DNS,
		ExtraHosts: []string{"host.docker.internal:host-gateway"},
		// Any later CLI must be able to read the run's record; not every log driver allows that.
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "256m", "max-file": "2"}},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Resources: container.Resources{
			Memory:    s.Limits.MemoryBytes,
			NanoCPUs:  int64(s.Limits.CPUs * 1e9),
			PidsLimit: &pids,
		},
	}
	// An anonymous volume is removed with the box. It is created here and not by the image's VOLUME, so that it has our labels if
	// the box is removed without it.
	hc.Mounts = []mount.Mount{{
		Type: mount.TypeVolume, Target: workorder.DataRoot, VolumeOptions: &mount.VolumeOptions{Labels: s.Labels},
	}}
	if s.CacheVolume != "" {
		hc.Mounts = append(hc.Mounts, mount.Mount{
			Type: mount.TypeVolume, Source: s.CacheVolume, Target: workorder.CacheDir,
			VolumeOptions: &mount.VolumeOptions{Labels: map[string]string{runtime.LabelCache: "1"}},
		})
	}
	// A process of `docker exec` joins the cgroup namespace of PID 1 only if the box has its own. An engine with cgroup version 1
	// does not allow that for a privileged box.
	if s.CgroupV2 || s.Isolation == workorder.IsolationConfined {
		hc.CgroupnsMode = container.CgroupnsModePrivate
	}
	switch s.Isolation {
	case workorder.IsolationConfined:
		hc.CapDrop, hc.CapAdd = []string{"ALL"}, slices.Clone(confinedCaps)
		var err error
		if hc.SecurityOpt, err = confinedSecurity(s); err != nil {
			return nil, nil, err
		}
		// The docker command calls this systempaths=unconfined: empty, not absent.
		hc.MaskedPaths, hc.ReadonlyPaths = []string{}, []string{}
		if s.Fuse {
			hc.Devices = []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/fuse", CgroupPermissions: "rwm"}}
		}
	case workorder.IsolationPrivileged:
		hc.Privileged = true
	default:
		return nil, nil, fmt.Errorf("isolation %q is not known: use %s or %s", s.Isolation, workorder.IsolationConfined,
			workorder.IsolationPrivileged)
	}
	return cfg, hc, nil
}

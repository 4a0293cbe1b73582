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

// confinedCaps are all capabilities of a confined box; `make caps` tries each. A process in an inner container has a
// user namespace with capabilities of its own, which do not come from these. Some of the engine's default set are left
// out, because nothing fails without them: AUDIT_WRITE (writes to the machine's own audit log), NET_BIND_SERVICE (an
// engine since 20.10 lets every user in a container bind low ports), NET_RAW (forged packets between boxes) and SETPCAP.
var confinedCaps = []string{
	"CHOWN",        // the agent's home and work tree, layers of images, packages
	"DAC_OVERRIDE", // root's work in folders of the agent, and overlay mounts with files of other users
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

// confinedSecurity lifts the filters that forbid an inner engine's ordinary work. The box
// is confined by its capability set, its device cgroup, and a filter of the calls with which SYS_ADMIN reaches the whole machine.
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

// machineCalls change or read the whole machine, and an inner engine makes none of them. Mounts are not among them: a filter sees
// no names of file systems.
var machineCalls = []string{
	"acct", "clock_settime", "clock_settime64", "delete_module", "finit_module", "init_module", "ioperm", "iopl",
	"kexec_file_load", "kexec_load", "lookup_dcookie", "open_by_handle_at", "perf_event_open", "quotactl", "quotactl_fd",
	"settimeofday", "stime", "swapoff", "swapon", "syslog",
}

// boxFilter refuses machineCalls. On control groups version 2 the inner engine's runtime gives each container its list of devices by bpf.
func boxFilter(cgroupV2 bool) seccompProfile {
	names := slices.Clone(machineCalls)
	if !cgroupV2 {
		names = append(names, "bpf")
	}
	return seccompProfile{
		DefaultAction: "SCMP_ACT_ALLOW",
		// Without their own row programs of a machine's second instruction set would be killed.
		ArchMap: []seccompArch{
			{"SCMP_ARCH_X86_64", []string{"SCMP_ARCH_X86", "SCMP_ARCH_X32"}},
			{"SCMP_ARCH_AARCH64", []string{"SCMP_ARCH_ARM"}},
		},
		Syscalls: []seccompRule{{Names: names, Action: "SCMP_ACT_ERRNO"}},
	}
}

// seccompProfile is what engines read of a filter (the format of Docker's --security-opt seccomp=FILE).
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

// hostConfig translates a spec. It is pure; its golden test shows what a box may do. It never makes a bind mount.
func hostConfig(s runtime.ContainerSpec) (*container.Config, *container.HostConfig, error) {
	stop := int(runtime.StopTimeout / time.Second)
	cfg := &container.Config{
		Image:       s.Image,
		Labels:      s.Labels,
		OpenStdin:   true,
		StdinOnce:   true,
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
		// The record of the run must be readable by any later CLI, which not every log driver allows.
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "256m", "max-file": "2"}},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Resources: container.Resources{
			Memory:    s.Limits.MemoryBytes,
			NanoCPUs:  int64(s.Limits.CPUs * 1e9),
			PidsLimit: &pids,
		},
	}
	// An anonymous volume is removed with the box. It is made here and not by the image's
	// VOLUME, so that it has our labels in case the box is removed without it.
	hc.Mounts = []mount.Mount{{
		Type: mount.TypeVolume, Target: workorder.DataRoot, VolumeOptions: &mount.VolumeOptions{Labels: s.Labels},
	}}
	if s.CacheVolume != "" {
		hc.Mounts = append(hc.Mounts, mount.Mount{
			Type: mount.TypeVolume, Source: s.CacheVolume, Target: workorder.CacheDir,
			VolumeOptions: &mount.VolumeOptions{Labels: map[string]string{runtime.LabelCache: "1"}},
		})
	}
	// A process that enters the box later (`docker exec`) joins the namespace of PID 1 only if the box has one of its own. An
	// engine on control groups version 1 refuses that to a privileged box.
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
		// what the docker command calls systempaths=unconfined: empty, not absent
		hc.MaskedPaths, hc.ReadonlyPaths = []string{}, []string{}
		if s.Fuse {
			hc.Devices = []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/fuse", CgroupPermissions: "rwm"}}
		}
	case workorder.IsolationPrivileged:
		hc.Privileged = true
	default:
		return nil, nil, fmt.Errorf(
			"isolation %q is not known: use %s or %s", s.Isolation, workorder.IsolationConfined,
			workorder.IsolationPrivileged,
		)
	}
	return cfg, hc, nil
}

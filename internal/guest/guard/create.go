package guard

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// defaultCapabilities are those of a container without a capability setting, moby
// oci/caps/defaults.go; they are capabilities in the user sandbox's namespace.
var defaultCapabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
	"NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// The tables have every field of API 1.51; nil allows any value.

// configFields describe an image and the process; they give no power over the box.
func configFields() map[string]check {
	return map[string]check{
		"Hostname": nil, "Domainname": nil, "User": nil, "AttachStdin": nil, "AttachStdout": nil, "AttachStderr": nil,
		"ExposedPorts": nil, "Tty": nil, "OpenStdin": nil, "StdinOnce": nil, "Env": nil, "Cmd": nil, "Healthcheck": nil,
		"ArgsEscaped": nil, "Image": nil, "Volumes": nil, "WorkingDir": nil, "Entrypoint": nil, "NetworkDisabled": nil,
		"MacAddress": nil, "OnBuild": nil, "Labels": nil, "StopSignal": nil, "StopTimeout": nil, "Shell": nil,
	}
}

// resourceFields are shared by creation and update.
func resourceFields() map[string]check {
	return map[string]check{
		"CpuShares": nil, "Memory": nil, "NanoCpus": nil, "BlkioWeight": nil,
		// Limits of the container's own group for a device.
		"BlkioWeightDevice": nil, "BlkioDeviceReadBps": nil, "BlkioDeviceWriteBps": nil, "BlkioDeviceReadIOps": nil, "BlkioDeviceWriteIOps": nil,
		"CpuPeriod": nil, "CpuQuota": nil, "CpuRealtimePeriod": nil, "CpuRealtimeRuntime": nil, "CpusetCpus": nil, "CpusetMems": nil,
		"KernelMemory": nil, "KernelMemoryTCP": nil, "MemoryReservation": nil, "MemorySwap": nil, "MemorySwappiness": nil,
		"PidsLimit": nil, "Ulimits": nil,
		"CpuCount": nil, "CpuPercent": nil, "IOMaximumIOps": nil, "IOMaximumBandwidth": nil,

		"CgroupParent": unset(ruleCgroupParent),
		"Devices":      unset(ruleDevice), "DeviceCgroupRules": unset(ruleDevice), "DeviceRequests": unset(ruleDevice),
		"OomKillDisable": unset(ruleOOM),
	}
}

func hostFields() map[string]check {
	f := map[string]check{
		"ContainerIDFile": nil, "PortBindings": nil, "RestartPolicy": nil, "AutoRemove": nil, "VolumesFrom": nil, "ConsoleSize": nil,
		"CapDrop": nil, "Dns": nil, "DnsOptions": nil, "DnsSearch": nil, "ExtraHosts": nil, "GroupAdd": nil, "Links": nil,
		"PublishAllPorts": nil, "ReadonlyRootfs": nil, "ShmSize": nil, "Init": nil, "Isolation": nil,
		// The runtime allows only those of the container's own namespaces.
		"Sysctls": nil,
		// The engine knows these flags one by one.
		"Tmpfs": nil,

		"Privileged":    unset(rulePrivileged),
		"UsernsMode":    unset(ruleUserns),
		"PidMode":       namespace(rulePID),
		"IpcMode":       namespace(ruleIPC, "none", "private", "shareable"),
		"UTSMode":       unset(ruleUTS),
		"CgroupnsMode":  namespace(ruleCgroupns, "private"),
		"NetworkMode":   text(networkMode),
		"CapAdd":        capabilities,
		"SecurityOpt":   listOf(text(securityOpt)),
		"MaskedPaths":   absent(ruleMaskedPaths),
		"ReadonlyPaths": absent(ruleMaskedPaths),
		"Runtime":       oneOf(ruleRuntime, "", "runc", "crun", "io.containerd.runc.v2"),
		"Cgroup":        unset(ruleCgroupParent),
		"LogConfig":     object(map[string]check{"Type": oneOf(ruleLogDriver, "", "json-file", "local", "none"), "Config": nil}),
		"Annotations":   unset(ruleAnnotation),
		"OomScoreAdj":   oomScore,
		"StorageOpt":    mapOf(storageOpt),
		"VolumeDriver":  oneOf(ruleVolumeDriver, "", "local"),
		"Binds":         binds,
		"Mounts":        listOf(mountOf),
	}
	maps.Copy(f, resourceFields())
	return f
}

var (
	hostConfig         = object(hostFields())
	createBody   check = createOf
	execBody           = lenient(execFields())
	updateBody         = object(updateFields())
	startBody          = object(nil)
	execStart          = lenient(map[string]check{"Detach": nil, "Tty": nil, "ConsoleSize": nil})
	credentials        = lenient(authFields())
	endpointBody       = object(endpointFields())
)

func createFields() map[string]check {
	f := configFields()
	f["HostConfig"] = hostConfigOf
	f["NetworkingConfig"] = object(map[string]check{"EndpointsConfig": mapOf(endpointOf)})
	return f
}

func execFields() map[string]check {
	return map[string]check{
		"User": nil, "Tty": nil, "ConsoleSize": nil, "AttachStdin": nil, "AttachStderr": nil, "AttachStdout": nil,
		"DetachKeys": nil, "Env": nil, "WorkingDir": nil, "Cmd": nil, "Detach": nil, "Container": nil,
		"Privileged": unset(rulePrivileged),
	}
}

func updateFields() map[string]check {
	f := resourceFields()
	f["RestartPolicy"] = nil
	return f
}

func authFields() map[string]check {
	return map[string]check{
		"username": nil, "password": nil, "auth": nil, "email": nil, "serveraddress": nil, "identitytoken": nil, "registrytoken": nil,
	}
}

var createObject = object(createFields())

// createOf checks a container.
func createOf(j *judge, at string, v any) (any, error) {
	v, err := createObject(j, at, v)
	if err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); ok {
		ownUser(m, j.peer)
	}
	return v, nil
}

// ownUser makes a container that binds files and is to run with the caller's user id run as its root: in it
// root owns the caller's files, and what root writes there is the caller's. The same number is another user
// in the container, who could not write.
func ownUser(container map[string]any, caller peer) {
	user, _ := container["User"].(string)
	uid, _, _ := strings.Cut(user, ":")
	if uid == strconv.FormatUint(uint64(caller.uid), 10) && bindsFiles(container["HostConfig"]) {
		container["User"] = "0:0"
	}
}

// bindsFiles reports whether a checked HostConfig has a bind.
func bindsFiles(host any) bool {
	h, _ := host.(map[string]any)
	mounts, _ := h["Mounts"].([]any)
	return slices.ContainsFunc(mounts, func(e any) bool {
		m, _ := e.(map[string]any)
		return m["Type"] == "bind"
	})
}

// hostConfigOf checks HostConfig and writes binds as mounts, see binds.
func hostConfigOf(j *judge, at string, v any) (any, error) {
	v, err := hostConfig(j, at, v)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok || len(j.binds) == 0 {
		return v, nil
	}
	mounts, _ := m["Mounts"].([]any)
	m["Mounts"] = append(mounts, j.binds...)
	return m, nil
}

// absent allows no value: an empty list of paths means none, not the default ones.
func absent(rule string) check {
	return func(_ *judge, at string, _ any) (any, error) {
		return nil, refuse(rule, "%s is not possible in a sandbox", at)
	}
}

// namespace allows the empty mode, those given, and, except for cgroup namespaces, which have no such mode, a container's.
func namespace(rule string, modes ...string) check {
	return text(func(_ *judge, at, s string) (string, error) {
		if s == "" || slices.Contains(modes, s) {
			return s, nil
		}
		if id, ok := strings.CutPrefix(s, "container:"); ok && id != "" && rule != ruleCgroupns {
			return s, nil
		}
		return "", refuse(rule, "%s %q is not possible in a sandbox", at, s)
	})
}

func networkMode(_ *judge, at, s string) (string, error) {
	if isHost(s) {
		return "", refuse(ruleNetworkHost, "%s %q is not possible in a sandbox", at, s)
	}
	return s, nil
}

func isHost(s string) bool { return strings.EqualFold(strings.TrimSpace(s), "host") }

// capabilities accepts a list or, as the engine does, one string.
func capabilities(_ *judge, at string, v any) (any, error) {
	list, ok := v.([]any)
	if s, one := v.(string); one {
		list, ok = []any{s}, true
	}
	if !ok {
		return nil, refuse(ruleBody, "%s must be a list", at)
	}
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, refuse(ruleBody, "%s must be a list of strings", at)
		}
		name := strings.TrimPrefix(strings.ToUpper(s), "CAP_")
		if !slices.Contains(defaultCapabilities, name) {
			return nil, refuse(ruleCapability, "the capability %q cannot be added in a sandbox", s)
		}
	}
	return list, nil
}

// securityOpt reads an option as the engine does: key=value, or the old key:value.
func securityOpt(_ *judge, _, s string) (string, error) {
	key, value, sep := strings.Cut(s, "=")
	if !sep {
		key, value, _ = strings.Cut(s, ":")
	}
	ok := false
	switch key {
	case "no-new-privileges":
		ok = slices.Contains([]string{"", "true", "false"}, value)
	case "seccomp":
		ok = value == "builtin" || value == "default"
	case "apparmor":
		ok = value == "docker-default"
	case "label":
		ok = true
	}
	if !ok {
		return "", refuse(ruleSecurityOpt, "the security option %q is not possible in a sandbox", s)
	}
	return s, nil
}

func oomScore(_ *judge, at string, v any) (any, error) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, refuse(ruleBody, "%s must be a number", at)
	}
	i, err := n.Int64()
	if err != nil {
		return nil, refuse(ruleBody, "%s must be a whole number", at)
	}
	if i < 0 {
		return nil, refuse(ruleOOM, "%s %d is not possible in a sandbox", at, i)
	}
	return n, nil
}

func storageOpt(_ *judge, at, key string, v any) (any, error) {
	if key != "size" {
		return nil, refuse(ruleStorageOpt, "%s %q is not possible in a sandbox", at, key)
	}
	return v, nil
}

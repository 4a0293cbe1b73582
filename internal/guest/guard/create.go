package guard

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// defaultCapabilities are moby's (oci/caps/defaults.go), in the user sandbox's namespace.
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

// ownUser makes a container that binds files and is to run with the caller's user id run as its root: in it root owns
// the caller's files.
func ownUser(container map[string]any, caller peer) {
	user, _ := container["User"].(string)
	uid, _, _ := strings.Cut(user, ":")
	if uid == strconv.FormatUint(uint64(caller.uid), 10) && bindsFiles(container["HostConfig"]) {
		container["User"] = "0:0"
	}
}

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

// Options of a bind as the engine reads them, moby volume/mounts/linux_parser.go.
var (
	bindLabels      = []string{"z", "Z"}
	bindConsistency = []string{"consistent", "cached", "delegated"}
	bindPropagation = []string{"private", "rprivate", "slave", "rslave"}
	bindShared      = []string{"shared", "rshared"}
)

// slaves reports whether a bind is to show later mounts of the box.
func slaves(propagation string) bool { return strings.HasSuffix(propagation, "slave") }

var mountFields = object(map[string]check{
	"Type": oneOf(ruleMountType, "bind", "volume", "tmpfs", "image"), "Source": text(plainText), "Target": text(plainText),
	"ReadOnly": nil, "Consistency": nil,
	"BindOptions": object(map[string]check{
		"Propagation":  oneOf(rulePropagation, "", "private", "rprivate", "slave", "rslave"),
		"NonRecursive": nil, "CreateMountpoint": nil, "ReadOnlyNonRecursive": nil, "ReadOnlyForceRecursive": nil,
	}),
	"VolumeOptions": object(map[string]check{
		"NoCopy": nil, "Labels": nil, "Subpath": nil,
		"DriverConfig": driverOf("Name", "Options"),
	}),
	"ImageOptions":   object(map[string]check{"Subpath": nil}),
	"TmpfsOptions":   object(map[string]check{"SizeBytes": nil, "Mode": nil, "Options": nil}),
	"ClusterOptions": unset(ruleMountType),
})

var volumeBody = volumeOf

func volumeOf(j *judge, at string, v any) (any, error) {
	v, err := object(map[string]check{
		"Name": text(volumeName), "Driver": nil, "DriverOpts": nil, "Labels": nil,
		"ClusterVolumeSpec": unset(ruleVolumeDriver),
	})(j, at, v)
	if err != nil {
		return nil, err
	}
	return v, driver(at, v, "Driver", "DriverOpts")
}

// driverOf returns a check of an object that names a volume driver and its options.
func driverOf(name, options string) check {
	fields := object(map[string]check{name: nil, options: nil})
	return func(j *judge, at string, v any) (any, error) {
		v, err := fields(j, at, v)
		if err != nil {
			return nil, err
		}
		return v, driver(at, v, name, options)
	}
}

func driver(at string, v any, name, options string) error {
	m, _ := v.(map[string]any)
	if d := m[name]; !empty(d) && d != "local" {
		return refuse(ruleVolumeDriver, "%s %q is not possible in a sandbox", join(at, name), d)
	}
	if empty(m[options]) {
		return nil
	}
	opts, ok := m[options].(map[string]any)
	if !ok {
		return refuse(ruleBody, "%s must be an object", join(at, options))
	}
	if opts["type"] != "tmpfs" {
		return refuse(ruleVolumeDriver, "a volume with options of type %q is not possible in a sandbox", opts["type"])
	}
	for key, v := range opts {
		s, ok := v.(string)
		if !ok {
			return refuse(ruleBody, "%s.%s must be a string", join(at, options), key)
		}
		switch key {
		case "type", "device": // a tmpfs has no device: the value is never opened
		case "o":
			if bad := tmpfsOption(s); bad != "" {
				return refuse(ruleVolumeDriver, "the mount option %q is not possible in a sandbox", bad)
			}
		default:
			return refuse(ruleVolumeDriver, "the option %q of a volume is not possible in a sandbox", key)
		}
	}
	return nil
}

// tmpfsOption returns the first option that is not a tmpfs's own. The option "bind" would mount the device itself.
func tmpfsOption(s string) (bad string) {
	for o := range strings.SplitSeq(s, ",") {
		key, _, _ := strings.Cut(o, "=")
		if !slices.Contains([]string{
			"", "size", "mode", "uid", "gid", "nr_inodes", "nr_blocks", "rw", "ro", "exec", "noexec", "nosuid", "nodev", "noatime",
		}, key) {
			return o
		}
	}
	return ""
}

func plainText(_ *judge, at, s string) (string, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", refuse(ruleBind, "%s has a control character", at)
	}
	return s, nil
}

// volumeName refuses names that the engine could read as a path.
func volumeName(_ *judge, at, s string) (string, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '/' || r == '\\' || r >= 0x7f }) || strings.HasPrefix(s, ".") {
		return "", refuse(ruleBind, "%s %q is neither the name of a volume nor an absolute path", at, s)
	}
	return s, nil
}

func mountOf(j *judge, at string, v any) (any, error) {
	v, err := mountFields(j, at, v)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, refuse(ruleBody, "%s must be an object", at)
	}
	source, _ := m["Source"].(string)
	switch m["Type"] {
	case "bind":
		opts, _ := m["BindOptions"].(map[string]any)
		how, _ := opts["Propagation"].(string)
		m["Source"], err = j.bind(bindRequest{source, !empty(opts["CreateMountpoint"]), slaves(how)})
		// The engine would create it as root, following links.
		delete(opts, "CreateMountpoint")
	case "volume":
		m["Source"], err = volumeName(j, at+".Source", source)
	case "image":
	default: // a tmpfs; the engine takes no mount without a type
		if source != "" || empty(m["Type"]) {
			err = refuse(ruleMountType, "%s of type %v with the source %q is not possible in a sandbox", at, m["Type"], source)
		}
	}
	return m, err
}

// binds turns HostConfig.Binds of paths into mounts: for those the engine does not create missing sources as root.
func binds(j *judge, at string, v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, refuse(ruleBody, "%s must be a list", at)
	}
	keep := []any{}
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, refuse(ruleBody, "%s must be a list of strings", at)
		}
		mount, err := j.bindSpec(at, s)
		if err != nil {
			return nil, err
		}
		if mount == nil {
			keep = append(keep, s)
		} else {
			j.binds = append(j.binds, mount)
		}
	}
	return keep, nil
}

// bindSpec reads [source:]target[:options]; it returns nil for a volume.
func (j *judge) bindSpec(at, spec string) (map[string]any, error) {
	if _, err := plainText(j, at, spec); err != nil {
		return nil, err
	}
	part := strings.Split(spec, ":")
	if len(part) > 3 || part[0] == "" {
		return nil, refuse(ruleBind, "%q is not SOURCE:TARGET or SOURCE:TARGET:OPTIONS", spec)
	}
	bind := map[string]any{}
	m := map[string]any{"Type": "bind"}
	if len(part) == 3 {
		for o := range strings.SplitSeq(part[2], ",") {
			switch {
			case slices.Contains(bindShared, o):
				return nil, refuse(rulePropagation, "the propagation %q of %q is not possible in a sandbox", o, spec)
			case slices.Contains(bindPropagation, o):
				bind["Propagation"] = o
			case o == "ro":
				m["ReadOnly"] = true
			case slices.Contains(bindConsistency, o):
				m["Consistency"] = o
			case o == "", o == "rw", o == "nocopy", slices.Contains(bindLabels, o): // labels: no SELinux inside
			default:
				return nil, refuse(ruleBind, "unknown option %q of %q", o, spec)
			}
		}
	}
	if len(part) == 1 {
		if !path.IsAbs(spec) {
			return nil, refuse(ruleBind, "%q is not an absolute path", spec)
		}
		return nil, nil
	}
	if !path.IsAbs(part[0]) {
		_, err := volumeName(j, at, part[0])
		return nil, err
	}
	how, _ := bind["Propagation"].(string)
	source, err := j.bind(bindRequest{part[0], true, slaves(how)})
	if err != nil {
		return nil, err
	}
	m["Source"], m["Target"] = source, part[1]
	if len(bind) > 0 {
		m["BindOptions"] = bind
	}
	return m, nil
}

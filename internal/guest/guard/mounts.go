package guard

import (
	"path"
	"slices"
	"strings"
)

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

// volumeOf checks volumes/create.
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

// tmpfsOption returns the first option that is not a tmpfs's own. The option "bind"
// would mount the device itself.
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

// mountOf checks one entry of Mounts.
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
		m["Source"], err = j.bind(bound{source, !empty(opts["CreateMountpoint"]), slaves(how)})
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

// binds checks HostConfig.Binds. It turns binds of paths into mounts: for mounts the
// engine does not create missing sources, which it would do as root, at every start, following links.
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
	source, err := j.bind(bound{part[0], true, slaves(how)})
	if err != nil {
		return nil, err
	}
	m["Source"], m["Target"] = source, part[1]
	if len(bind) > 0 {
		m["BindOptions"] = bind
	}
	return m, nil
}

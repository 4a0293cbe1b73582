package guard

import (
	"fmt"
	"strings"
	"unicode/utf8"

	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

// The names are part of messages, results and documents and must not change. The comments say what is refused, and why.
const (
	ruleAnnotation    = "annotation"        // OCI runtimes take orders from annotations
	ruleAPIVersion    = "api-version"       // malformed, or older than 1.24, which has settings in other places
	ruleArchive       = "archive-bind"      // docker cp with binds of root's files or mounts inside a bind, which the engine resolves as root
	ruleBind          = "bind"              // not below the workspace, home or /tmp, nor the Docker socket: the engine opens binds as root
	ruleBindLimit     = "bind-limit"        // each bind is a mount of the sandbox
	ruleBody          = "body"              // too large, no JSON object, duplicate or mistyped fields, which could be read differently
	ruleBuildOption   = "build-option"      // another control group, or unknown
	ruleBuildRemote   = "build-remote"      // the engine fetches URLs outside the network policy, and runs git as root
	ruleCapability    = "capability"        // beyond Docker's default set
	ruleCgroupns      = "cgroup-namespace"  // the sandbox's own
	ruleCgroupParent  = "cgroup-parent"     // limits and the network policy depend on it
	ruleCheckpoint    = "checkpoint"        // the engine writes it as root at a path of the client
	ruleDevice        = "device"            // devices, rules for devices and device requests (GPU)
	ruleIPC           = "ipc-namespace"     // the sandbox's own
	ruleLogDriver     = "log-driver"        // others than json-file, local and none: the engine would connect to the network
	ruleMaskedPaths   = "masked-paths"      // other masked or read-only paths than the default ones
	ruleMountType     = "mount-type"        // others than bind, volume, tmpfs and image
	rulePropagation   = "mount-propagation" // shared mounts would appear in the sandbox
	ruleNetworkDriver = "network-driver"    // others than bridge: macvlan and ipvlan join the sandbox's outer network
	ruleNetworkHost   = "network-host"      // has the sandbox's services on loopback and root's way out
	ruleNetworkOption = "network-option"    // names of interfaces in the sandbox, addresses it sends from, and unknown ones
	ruleNetworkSubnet = "network-subnet"    // not private, or with the address of a host that the sandbox trusts
	ruleOOM           = "oom"               // the kernel would kill the sandbox's own processes instead
	rulePath          = "path"              // dots, empty or escaped parts that engine and guard could read differently
	rulePID           = "pid-namespace"     // the sandbox's own
	rulePlugin        = "plugin"            // the engine runs plugins as root
	rulePrivileged    = "privileged"        // privileged containers and commands are root in the sandbox
	ruleQuery         = "query"             // ambiguous query strings
	ruleRuntime       = "runtime"           // others than runc and crun
	ruleSecurityOpt   = "security-opt"      // others than no-new-privileges, label and the built-in profiles
	ruleStorageOpt    = "storage-opt"       // others than size
	ruleSwarm         = "swarm"             // other ways to create containers
	ruleTopArgs       = "top-args"          // more than letters: ps runs as root in the sandbox
	ruleEndpoint      = "unknown-endpoint"  // an endpoint that the guard does not know
	ruleField         = "unknown-field"     // a setting that the guard does not know
	ruleUserns        = "userns"            // root in the container would be root in the sandbox
	ruleUTS           = "uts-namespace"     // the sandbox's own
	ruleVolumeDriver  = "volume-driver"     // others than local and its tmpfs: they mount the client's files as root
)

// instead has the alternative to each rule; it ends the message of a refusal.
var instead = map[string]string{
	ruleAnnotation:    "leave annotations out; use labels",
	ruleAPIVersion:    "use a newer client, or unset DOCKER_API_VERSION",
	ruleArchive:       "the bound files are in the sandbox already; for the others use `docker exec CONTAINER tar`",
	ruleBind:          "bind a directory in the workspace, in home or in /tmp, or use a named volume",
	ruleBindLimit:     "remove unused containers",
	ruleBody:          "use a current Docker client",
	ruleBuildOption:   "leave the option out",
	ruleBuildRemote:   "fetch it in the sandbox (curl, git) and give the local copy",
	ruleCapability:    "leave cap_add out, or add only capabilities of Docker's default set",
	ruleCgroupns:      "leave cgroupns out",
	ruleCgroupParent:  "leave cgroup_parent out; limits work",
	ruleCheckpoint:    "stop and start the container",
	ruleDevice:        "run programs that need a device outside the sandbox",
	ruleIPC:           "use --ipc private, shareable or container:NAME",
	ruleLogDriver:     "use json-file or local",
	ruleMaskedPaths:   "leave systempaths=unconfined out",
	ruleMountType:     "use a bind, a named volume or a tmpfs",
	rulePropagation:   "use rprivate or rslave",
	ruleNetworkDriver: "use the bridge driver",
	ruleNetworkHost:   "publish ports, and reach the sandbox as host.docker.internal (--add-host host.docker.internal:host-gateway)",
	ruleNetworkOption: "leave the option out",
	ruleNetworkSubnet: "leave the subnet out, or choose a free one in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16",
	ruleOOM:           "leave oom_score_adj and oom_kill_disable out",
	rulePath:          "use names of letters, digits, '_', '.' and '-'",
	rulePID:           "use --pid container:NAME",
	rulePlugin:        "do without the plugin",
	rulePrivileged:    "leave --privileged out; most images do not need it",
	ruleQuery:         "use a current Docker client",
	ruleRuntime:       "leave --runtime out",
	ruleSecurityOpt:   "leave security_opt out",
	ruleStorageOpt:    "leave storage_opt out",
	ruleSwarm:         "use docker compose",
	ruleTopArgs:       "use docker top without options, or like -eo pid,comm",
	ruleEndpoint:      "use another command, or report it if a Docker client needs it",
	ruleField:         "leave the setting out, or report it if a Docker client needs it",
	ruleUserns:        "leave --userns out",
	ruleUTS:           "use --hostname",
	ruleVolumeDriver:  "use a plain named volume or a bind of a directory in the workspace",
}

type refusal struct {
	rule string
	what string
}

func refuse(rule, format string, a ...any) error { return &refusal{rule, fmt.Sprintf(format, a...)} }

func (r *refusal) Error() string {
	return fmt.Sprintf("sandbox-agent guard: rule %s: %s: %s", r.rule, clean(r.what), instead[r.rule])
}

// maxWhat bounds the client's text that a message repeats.
const maxWhat = 300

// clean removes control characters that could move a terminal's cursor, and shortens the text.
func clean(s string) string {
	return texts.Runes(strings.Map(func(r rune) rune {
		if texts.IsControl(r) {
			return '?'
		}
		return r
	}, texts.Prefix(s, utf8.UTFMax*(maxWhat+1))), maxWhat)
}

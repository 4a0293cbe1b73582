package guard

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Rule is a reason to refuse requests.
type Rule struct {
	Name string
	// Refuses states in one sentence which requests are refused, and why.
	Refuses string
	// Instead is the user's alternative; it ends the message of a refusal.
	Instead string
}

// The names are part of messages, results and documents and must not change.
const (
	ruleAnnotation    = "annotation"
	ruleAPIVersion    = "api-version"
	ruleArchive       = "archive-bind"
	ruleBind          = "bind"
	ruleBindLimit     = "bind-limit"
	ruleBody          = "body"
	ruleBuildOption   = "build-option"
	ruleBuildRemote   = "build-remote"
	ruleCapability    = "capability"
	ruleCgroupns      = "cgroup-namespace"
	ruleCgroupParent  = "cgroup-parent"
	ruleCheckpoint    = "checkpoint"
	ruleDevice        = "device"
	ruleIPC           = "ipc-namespace"
	ruleLogDriver     = "log-driver"
	ruleMaskedPaths   = "masked-paths"
	ruleMountType     = "mount-type"
	rulePropagation   = "mount-propagation"
	ruleNetworkDriver = "network-driver"
	ruleNetworkHost   = "network-host"
	ruleNetworkOption = "network-option"
	ruleNetworkSubnet = "network-subnet"
	ruleOOM           = "oom"
	rulePath          = "path"
	rulePID           = "pid-namespace"
	rulePlugin        = "plugin"
	rulePrivileged    = "privileged"
	ruleQuery         = "query"
	ruleRuntime       = "runtime"
	ruleSecurityOpt   = "security-opt"
	ruleStorageOpt    = "storage-opt"
	ruleSwarm         = "swarm"
	ruleTopArgs       = "top-args"
	ruleEndpoint      = "unknown-endpoint"
	ruleField         = "unknown-field"
	ruleUserns        = "userns"
	ruleUTS           = "uts-namespace"
	ruleVolumeDriver  = "volume-driver"
)

var rules = []Rule{
	{ruleAnnotation, "Annotations of a container, because OCI runtimes take orders from them.", "leave annotations out; use labels"},
	{
		ruleAPIVersion, "API versions that are malformed or older than 1.24, because they carry settings in other places.",
		"use a newer client, or unset DOCKER_API_VERSION",
	},
	{
		ruleArchive,
		"docker cp with a container that binds files of root (such as /tmp), because the engine would read and write there as root, or " +
			"that has a mount inside a bind, because the engine resolves its path as root while the agent can turn it into a link elsewhere.",
		"the bound files are in the sandbox already; for the others use `docker exec CONTAINER tar`",
	},
	{
		ruleBind, "Binds other than files of the workspace, of home and of /tmp, and the Docker socket, because the engine opens them as root.",
		"bind a directory in the workspace, in home or in /tmp, or use a named volume",
	},
	{ruleBindLimit, "More than 1024 binds in all containers, because each is a mount of the sandbox.", "remove unused containers"},
	{
		ruleBody,
		"Bodies that are too large, are not one JSON object, name a field twice or give it the wrong type, because engine and guard could " +
			"read them differently.",
		"use a current Docker client",
	},
	{ruleBuildOption, "Options of a build that place it in another control group or are not known.", "leave the option out"},
	{
		ruleBuildRemote,
		"Builds and imports that the engine itself fetches from a URL, because it is outside the network policy, and builds from git " +
			"repositories anywhere, because git would run as root.",
		"fetch it in the sandbox (curl, git) and give the local copy",
	},
	{
		ruleCapability, "Capabilities beyond Docker's default set, because the kernel code behind them is the way out of a container.",
		"leave cap_add out, or add only capabilities of Docker's default set",
	},
	{ruleCgroupns, "The sandbox's cgroup namespace.", "leave cgroupns out"},
	{
		ruleCgroupParent, "A control group that the client chooses, because limits and the network policy depend on it.",
		"leave cgroup_parent out; limits work",
	},
	{
		ruleCheckpoint, "Checkpoints of processes, because the engine writes and reads them as root at a path that the client chooses.",
		"stop and start the container",
	},
	{ruleDevice, "Devices, rules for devices and device requests (GPU).", "run programs that need a device outside the sandbox"},
	{ruleIPC, "The sandbox's IPC namespace.", "use --ipc private, shareable or container:NAME"},
	{
		ruleLogDriver, "Log drivers other than json-file, local and none, because the engine itself would connect to the network.",
		"use json-file or local",
	},
	{ruleMaskedPaths, "Other masked or read-only paths of /proc and /sys than the default ones.", "leave systempaths=unconfined out"},
	{ruleMountType, "Mounts of other types than bind, volume, tmpfs and image.", "use a bind, a named volume or a tmpfs"},
	{rulePropagation, "Shared mount propagation, because mounts would appear in the sandbox.", "use rprivate or rslave"},
	{
		ruleNetworkDriver, "Networks of other drivers than bridge (macvlan and ipvlan put a container on the sandbox's outer network).",
		"use the bridge driver",
	},
	{
		ruleNetworkHost, "The sandbox's own network, because the sandbox's services on loopback and root's way out would be the container's.",
		"publish ports, and reach the sandbox as host.docker.internal (--add-host host.docker.internal:host-gateway)",
	},
	{
		ruleNetworkOption,
		"Options of networks and endpoints that are not known to be harmless: names of interfaces in the sandbox, addresses it sends from.",
		"leave the option out",
	},
	{
		ruleNetworkSubnet,
		"Subnets that are not private, or that the sandbox itself needs, because a container could take the address of a host that the " +
			"sandbox trusts.",
		"leave the subnet out, or choose a free one in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16",
	},
	{
		ruleOOM, "Protection from the kernel's out-of-memory killer, because the sandbox's own processes would be killed in its place.",
		"leave oom_score_adj and oom_kill_disable out",
	},
	{
		rulePath, "Request paths with dots, empty or escaped parts that engine and guard could read differently.",
		"use names of letters, digits, '_', '.' and '-'",
	},
	{rulePID, "The sandbox's process namespace.", "use --pid container:NAME"},
	{rulePlugin, "Plugins, because the engine runs them as root.", "do without the plugin"},
	{
		rulePrivileged, "Privileged containers and commands, because they are root in the sandbox.",
		"leave --privileged out; most images do not need it",
	},
	{ruleQuery, "Ambiguous query strings.", "use a current Docker client"},
	{ruleRuntime, "OCI runtimes other than runc and crun.", "leave --runtime out"},
	{ruleSecurityOpt, "Security options other than no-new-privileges, label and the built-in profiles.", "leave security_opt out"},
	{ruleStorageOpt, "Options of the storage driver other than size.", "leave storage_opt out"},
	{ruleSwarm, "Swarm, services, nodes, tasks, secrets and configs, because they are other ways to create containers.", "use docker compose"},
	{
		ruleTopArgs, "Options of ps that are more than letters, because ps runs as root in the sandbox.",
		"use docker top without options, or like -eo pid,comm",
	},
	{ruleEndpoint, "Endpoints of the API that the guard does not know.", "use another command, or report it if a Docker client needs it"},
	{ruleField, "Settings that the guard does not know.", "leave the setting out, or report it if a Docker client needs it"},
	{ruleUserns, "The sandbox's user namespace, because root in the container would be root in the sandbox.", "leave --userns out"},
	{ruleUTS, "The sandbox's host name.", "use --hostname"},
	{
		ruleVolumeDriver,
		"Volume drivers other than local, and options of local other than a tmpfs, because they mount files as root that the client names.",
		"use a plain named volume or a bind of a directory in the workspace",
	},
}

// Rules lists every rule by name.
func Rules() []Rule { return slices.Clone(rules) }

type refusal struct {
	rule string
	what string
}

func refuse(rule, format string, a ...any) error {
	return &refusal{rule, fmt.Sprintf(format, a...)}
}

func (r *refusal) Error() string {
	i := slices.IndexFunc(rules, func(x Rule) bool { return x.Name == r.rule })
	return fmt.Sprintf("sandbox-agent guard: rule %s: %s: %s", r.rule, clean(r.what), rules[i].Instead)
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

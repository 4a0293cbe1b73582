package guard_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func cases(work string) []requestCase {
	return slices.Concat(hostCases(), jsonCases(), bindCases(work), volumeCases(), networkCases(), endpointCases())
}

func hostCases() []requestCase {
	return []requestCase{
		no("privileged", host(`"Privileged":true`)),
		no("privileged", host(`"privileged":true`)),
		no("privileged", host(`"Priſvileged":false,"Privileged":1`)),
		no("privileged", host(`"PRIVILEGED":"yes"`)),
		no("privileged", call("POST /containers/x/exec", `{"Cmd":["id"],"Privileged":true}`)),
		host(`"Privileged":false`),
		no("userns", host(`"UsernsMode":"host"`)),
		no("userns", host(`"Uſernsmode":"host"`)),
		no("userns", host(`"UsernsMode":"other"`)),
		no("pid-namespace", host(`"PidMode":"host"`)),
		host(`"PidMode":"container:x"`),
		no("pid-namespace", host(`"PidMode":"container:"`)),
		no("ipc-namespace", host(`"IpcMode":"host"`)),
		host(`"IpcMode":"shareable"`),
		no("uts-namespace", host(`"UTSMode":"host"`)),
		no("cgroup-namespace", host(`"CgroupnsMode":"host"`)),
		no("cgroup-namespace", host(`"CgroupnsMode":"container:x"`)),
		host(`"CgroupnsMode":"private"`),
		no("network-host", host(`"NetworkMode":"host"`)),
		host(`"NetworkMode":"container:x"`),
		host(`"NetworkMode":"own"`),
		no("capability", host(`"CapAdd":["SYS_ADMIN"]`)),
		no("capability", host(`"CapAdd":["cap_sys_admin"]`)),
		no("capability", host(`"CapAdd":["ALL"]`)),
		no("capability", host(`"CapAdd":"NET_ADMIN"`)),
		no("capability", host(`"CapAdd":["NET_RAW"," SYS_ADMIN"]`)),
		host(`"CapAdd":["NET_RAW","cap_chown"],"CapDrop":["ALL"]`),
		no("security-opt", host(`"SecurityOpt":["seccomp=unconfined"]`)),
		no("security-opt", host(`"SecurityOpt":["seccomp={}"]`)),
		no("security-opt", host(`"SecurityOpt":["apparmor:unconfined"]`)),
		no("security-opt", host(`"SecurityOpt":["writable-cgroups=true"]`)),
		no("security-opt", host(`"SecurityOpt":["systempaths=unconfined"]`)),
		host(`"SecurityOpt":["no-new-privileges","label:disable","label=disable","seccomp=builtin","apparmor=docker-default","no-new-privileges:true"]`),
		no("masked-paths", host(`"MaskedPaths":[]`)),
		no("masked-paths", host(`"ReadonlyPaths":["/x"]`)),
		host(`"MaskedPaths":null,"ReadonlyPaths":null`),
		no("device", host(`"Devices":[{"PathOnHost":"/dev/fuse"}]`)),
		no("device", host(`"DeviceCgroupRules":["a *:* rwm"]`)),
		no("device", host(`"DeviceRequests":[{"Count":-1}]`)),
		host(`"Devices":[],"DeviceRequests":null`),
		no("runtime", host(`"Runtime":"evil"`)),
		host(`"Runtime":"runc"`),
		no("cgroup-parent", host(`"CgroupParent":"/"`)),
		no("cgroup-parent", call("POST /containers/x/update", `{"CgroupParent":"/"}`)),
		no("log-driver", host(`"LogConfig":{"Type":"gelf","Config":{"gelf-address":"udp://1.2.3.4:1"}}`)),
		host(`"LogConfig":{"Type":"json-file","Config":{"max-size":"1m"}}`),
		no("annotation", host(`"Annotations":{"run.oci.handler":"krun"}`)),
		host(`"Annotations":{}`),
		no("oom", host(`"OomScoreAdj":-1`)),
		no("oom", host(`"OomKillDisable":true`)),
		no("oom", call("POST /containers/x/update", `{"OomKillDisable":true}`)),
		host(`"OomScoreAdj":500`),
		no("storage-opt", host(`"StorageOpt":{"dm.x":"1"}`)),
		host(`"StorageOpt":{"size":"1G"}`),
		yes(`{"HostConfig":{"Memory":9223372036854775807,"NanoCpus":1500000000},"Image":"x"}`, host(`"memory":9223372036854775807,"NANOCPUS":1500000000`)),
		call("POST /containers/x/update", `{"Memory":1,"RestartPolicy":{"Name":"no"}}`),
	}
}

func jsonCases() []requestCase {
	create := func(body string) requestCase { return call("POST /containers/create", body) }
	return []requestCase{
		no("body", host(`"Privileged":false,"privileged":false`)),
		no("body", host(`"Memory":1,"Memory":2`)),
		no("body", create(`{"HostConfig":{},"hostconfig":{"Privileged":true}}`)),
		no("body", create(`{"HostConfig":{},"HoſtConfig":{"Privileged":true}}`)),
		no("privileged", create(`{"HoſtConfig":{"Privileged":true}}`)),
		no("unknown-field", create(`{"Image":"x","Privileged":true}`)), // the old wrapper
		no("unknown-field", create(`{"Image":"x","Binds":["/:/x"]}`)),
		no("unknown-field", host(`"Capabilities":["CAP_SYS_ADMIN"]`)),
		yes(`{"Image":"x"}`, create(`{"Image":"x","Memory":0,"Binds":null,"Cpuset":"","Devices":[],"LogConfig":{}}`)),
		yes(`{"Image":"x"}`, create(`{"Image":"x","HostConfig":null}`)),
		no("body", create(`[]`)),
		no("body", create(`{"Image":"x"} {"Image":"y"}`)),
		no("body", create(`{"Image":"x"`)),
		no("body", create(`{"HostConfig":[]}`)),
		no("body", create(`{"x":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`}`)),
		no("body", requestCase{req: "POST /containers/create", body: `{"Image":"x"}`, ct: "application/x-www-form-urlencoded"}),
		no("body", create(`{"Image":"`+strings.Repeat("x", 5<<20)+`"}`)),
		no("unknown-field", call("POST /containers/x/start", `{"Binds":["/:/x"]}`)),
		yes("", call("POST /containers/x/start", `{}`)),
		call("POST /containers/x/exec", `{"Cmd":["id"],"AttachStdout":true,"Env":null}`),
		call("POST /commit?container=x&repo=y", `{"Cmd":["x"]}`),
		no("privileged", call("POST /commit?container=x", `{"HostConfig":{"Privileged":true}}`)),
		call("POST /auth", `{"username":"a","password":"b","serveraddress":"c"}`),
		// Clients put fields of their own here, which the engine ignores.
		yes(`{"username":"a"}`, call("POST /auth", `{"username":"a","credsStore":"x"}`)),
		yes(`{"Cmd":["id"]}`, call("POST /containers/x/exec", `{"Cmd":["id"],"containerId":"x","stdin":true}`)),
		no("privileged", call("POST /containers/x/exec", `{"Cmd":["id"],"stdin":true,"pRivileged":true}`)),
	}
}

func mounted(target string, c requestCase) requestCase { c.mounted = target; return c }

func bindCases(work string) []requestCase {
	if err := os.MkdirAll(filepath.Join(work, "sub", "deep"), 0o755); err != nil {
		panic(err)
	}
	for name, to := range map[string]string{"out": "/etc", "in": "sub", "nowhere": "/no/such/thing", "up": "../.."} {
		if err := os.Symlink(to, filepath.Join(work, name)); err != nil {
			panic(err)
		}
	}
	bind := func(s string) requestCase { return host(`"Binds":["` + s + `"]`) }
	mount := func(s string) requestCase { return host(`"Mounts":[{` + s + `}]`) }
	made := func(source, more string) string {
		return `{"HostConfig":{"Binds":[],"Mounts":[{` + more + `"Source":"` + source + `","Target":"/x","Type":"bind"}]},"Image":"x"}`
	}
	return []requestCase{
		no("bind", bind("/:/x")),
		no("bind", bind("/etc:/x:ro")),
		no("bind", bind("/var/lib/docker:/x")),
		no("bind", bind(work+"/../..:/x")),
		no("bind", bind(work+"/out:/x")),
		no("bind", bind(work+"/out/new:/x")),
		no("bind", bind(work+"/nowhere:/x")),
		no("bind", bind(work+"/nowhere/new:/x")),
		no("bind", bind(work+"/up:/x")),
		no("bind", bind(work+"x:/x")),
		no("bind", bind("./x:/x")),
		no("bind", bind("../x:/x")),
		no("bind", bind("a/b:/x")),
		no("bind", bind(`\\etc:/x`)),
		no("bind", bind(work+":/x:ro:rw")),
		no("bind", bind(work+":/x:odd")),
		no("bind", bind(work+`\u0000:/x`)),
		no("bind", bind(":/x")),
		no("bind", bind("/proc/self/root:/x")),
		no("mount-propagation", bind(work+":/x:rshared")),
		no("mount-propagation", bind("vol:/x:shared")),
		mounted(work, yes(made(work, ""), bind(work+":/x"))),
		yes(made(work, ""), bind(work+"/:/x:rw,z")),
		mounted(work+"/sub/deep", yes(made(work+"/in/deep", ""), bind(work+"/in/./deep//:/x"))),
		mounted(work+"/sub/deep", yes(made(work+"/in/deep", `"BindOptions":{"Propagation":"slave"},"ReadOnly":true,`), bind(work+"/in/deep:/x:ro,slave"))),
		no("bind-limit", bind(strings.Repeat(work+`:/x","`, 1025)+work+":/x")),
		yes(made(work+"/not/there", ""), bind(work+"/sub/../not/there:/x")),
		yes(made(work, `"BindOptions":{"Propagation":"rslave"},"Consistency":"cached","ReadOnly":true,`), bind(work+":/x:ro,cached,rslave")),
		yes(made("/var/run/docker.sock", ""), bind("/var/run/docker.sock:/x")),
		yes(made("/run/docker.sock", ""), bind("/run//docker.sock:/x")),
		no("bind", bind("/run/docker.sock/..:/x")),
		yes(`{"HostConfig":{"Binds":["vol:/x:ro","/y"]},"Image":"x"}`, host(`"Binds":["vol:/x:ro","/y"]`)),
		no("bind", mount(`"Type":"bind","Source":"/etc","Target":"/x"`)),
		no("bind", mount(`"type":"bind","SOURCE":"`+work+`/out","Target":"/x"`)),
		no("bind", mount(`"Type":"bind","Source":"x","Target":"/x"`)),
		no("bind", mount(`"Type":"bind","Source":"/etc/new","Target":"/x","BindOptions":{"CreateMountpoint":true}`)),
		yes(`{"HostConfig":{"Mounts":[{"BindOptions":{},"Source":"`+work+`/new","Target":"/x","Type":"bind"}]},"Image":"x"}`,
			mount(`"Type":"bind","Source":"`+work+`/new","Target":"/x","BindOptions":{"CreateMountpoint":true}`)),
		no("mount-propagation", mount(`"Type":"bind","Source":"`+work+`","Target":"/x","BindOptions":{"Propagation":"shared"}`)),
		no("mount-type", mount(`"Type":"npipe","Source":"x","Target":"/x"`)),
		no("mount-type", mount(`"Type":"cluster","Source":"x","Target":"/x"`)),
		no("mount-type", mount(`"Type":"Bind","Source":"/etc","Target":"/x"`)),
		no("mount-type", mount(`"Source":"/etc","Target":"/x"`)),
		mount(`"Type":"tmpfs","Target":"/x","TmpfsOptions":{"SizeBytes":1}`),
		mount(`"Type":"volume","Source":"vol","Target":"/x","VolumeOptions":{"NoCopy":true,"DriverConfig":{"Name":"local"}}`),
		no("bind", mount(`"Type":"volume","Source":"/etc","Target":"/x"`)),
		no("bind", mount(`"Type":"volume","Source":"..","Target":"/x"`)),
		no("volume-driver", mount(`"Type":"volume","Source":"v","Target":"/x","VolumeOptions":{"DriverConfig":{"Options":{"type":"none","o":"bind","device":"/"}}}`)),
		no("volume-driver", host(`"VolumeDriver":"evil"`)),
		no("archive-bind", call("GET /containers/bound/archive?path=/x", "")),
		no("archive-bind", call("PUT /containers/bound/archive?path=/x", "tar")),
		no("archive-bind", call("HEAD /v1.41/containers/bound/archive?path=/x", "")),
		call("GET /containers/free/archive?path=/x", ""),
	}
}

func volumeCases() []requestCase {
	vol := func(s string) requestCase { return call("POST /volumes/create", `{`+s+`}`) }
	return []requestCase{
		vol(`"Name":"x","Driver":"local","DriverOpts":{},"Labels":{"a":"b","A":"c"}`),
		vol(`"DriverOpts":{"type":"tmpfs","device":"tmpfs","o":"size=1m,uid=1000"}`),
		no("volume-driver", vol(`"Driver":"nfs"`)),
		no("volume-driver", vol(`"DriverOpts":{"type":"none","o":"bind","device":"/etc"}`)),
		no("volume-driver", vol(`"DriverOpts":{"type":"tmpfs","o":"bind","device":"/etc"}`)),
		no("volume-driver", vol(`"DriverOpts":{"type":"tmpfs","o":"size=1,rbind"}`)),
		no("volume-driver", vol(`"DriverOpts":{"o":"bind","device":"/etc"}`)),
		no("volume-driver", vol(`"driveropts":{"type":"nfs","device":":/x"}`)),
		no("volume-driver", vol(`"ClusterVolumeSpec":{"Group":"x"}`)),
		no("bind", vol(`"Name":"../x"`)),
		no("bind", vol(`"Name":"a/b"`)),
	}
}

func networkCases() []requestCase {
	network := func(s string) requestCase { return call("POST /networks/create", `{"Name":"n",`+s+`}`) }
	subnet := func(s string) requestCase { return network(`"IPAM":{"Driver":"default","Config":[{` + s + `}]}`) }
	return []requestCase{
		network(`"CheckDuplicate":true,"Driver":"bridge","Options":{"com.docker.network.driver.mtu":"1400"},"IPAM":{"Driver":"default","Options":null,"Config":[]}`),
		no("network-driver", network(`"Driver":"macvlan"`)),
		no("network-driver", network(`"Driver":"ipvlan"`)),
		no("network-driver", network(`"IPAM":{"Driver":"dhcp"}`)),
		no("network-host", network(`"Driver":"host"`)),
		no("swarm", network(`"Scope":"swarm"`)),
		no("swarm", network(`"Ingress":true`)),
		no("network-option", network(`"ConfigOnly":true`)),
		no("network-option", network(`"ConfigFrom":{"Network":"x"}`)),
		no("network-option", network(`"Options":{"parent":"eth0"}`)),
		no("network-option", network(`"Options":{"com.docker.network.bridge.name":"eth0"}`)),
		no("network-option", network(`"Options":{"com.docker.network.bridge.host_binding_ipv4":"172.17.0.2"}`)),
		network(`"Options":{"com.docker.network.bridge.host_binding_ipv4":"127.0.0.1","com.docker.network.bridge.enable_icc":"true"}`),
		no("network-subnet", subnet(`"Subnet":"8.8.8.0/24"`)),
		no("network-subnet", subnet(`"Subnet":"0.0.0.0/0"`)),
		no("network-subnet", subnet(`"Subnet":"10.1.0.0/16"`)),
		no("network-subnet", subnet(`"Subnet":"172.0.0.0/8"`)),
		no("network-subnet", subnet(`"Subnet":"172.17.9.0/24"`)),
		no("network-subnet", subnet(`"Subnet":"169.254.169.0/24"`)),
		no("network-subnet", subnet(`"Subnet":"::ffff:10.9.0.0/112"`)),
		no("network-subnet", subnet(`"Subnet":"10.9.0.0/16","Gateway":"10.1.2.3"`)),
		no("network-subnet", subnet(`"Subnet":"10.9.0.0/16","AuxiliaryAddresses":{"a":"1.1.1.1"}`)),
		no("network-subnet", subnet(`"Subnet":"10.9.0.0/16","IPRange":"10.0.0.0/8"`)),
		no("network-subnet", subnet(`"Gateway":"10.9.0.1"`)),
		subnet(`"Subnet":"10.9.0.0/16","Gateway":"10.9.0.1","IPRange":"10.9.1.0/24"`),
		subnet(`"Subnet":"fd00:9::/64"`),
		call("POST /networks/n/connect", `{"Container":"x","EndpointConfig":{"Aliases":["a"],"IPAMConfig":{"IPv4Address":"10.9.0.2"}}}`),
		no("network-subnet", call("POST /networks/n/connect", `{"Container":"x","EndpointConfig":{"IPAMConfig":{"LinkLocalIPs":["169.254.169.254"]}}}`)),
		no("network-option", call("POST /networks/n/connect", `{"Container":"x","EndpointConfig":{"DriverOpts":{"x":"y"}}}`)),
		no("network-host", call("POST /containers/create", `{"NetworkingConfig":{"EndpointsConfig":{"host":{}}}}`)),
		yes(`{"NetworkingConfig":{"EndpointsConfig":{"a":{"Aliases":["b"]},"c":null}}}`, call("POST /containers/create", `{"NetworkingConfig":{"endpointsconfig":{"a":{"aliases":["b"]},"c":null}}}`)),
		call("POST /networks/n/disconnect", `{"Container":"x","Force":true}`),
	}
}

func endpointCases() []requestCase {
	ok := func(req string) requestCase { return call(req, "") }
	return []requestCase{
		ok("GET /_ping"), ok("GET /v1.51/info"), ok("GET /plugins"), ok("GET /networks/"), ok("GET /images/a/b:c/json"), ok("GET /images/a%2Fb:c/json"),
		ok("DELETE /v1.41/images/registry:5000/a/b@sha256:0?force=1"), ok("GET /containers//name/json"), ok("POST /images/create?fromImage=a&tag=b"),
		ok("POST /images/create?fromSrc=-&repo=x"), ok("POST /build/prune"), ok("GET /containers/x/top?ps_args=-eo+pid,comm"), ok("GET /containers/x/top"),
		ok("POST /build?networkmode=default&cgroupparent=&remote=client-session&version=2&t=a&t=b"),
		no("path", ok("GET /")), no("path", ok("OPTIONS /%2e%2e")), no("unknown-endpoint", ok("OPTIONS /containers/json")),
		no("unknown-endpoint", ok("GET /debug/pprof/heap")), no("unknown-endpoint", ok("GET /Containers/json")), no("unknown-endpoint", ok("POST /containers/a/b/exec")),
		no("unknown-endpoint", ok("PUT /containers/create")), no("unknown-endpoint", ok("GET /v1.41/v1.41/info")),
		no("path", ok("GET /containers/../info")), no("path", ok("GET /containers/%2e%2e/info")), no("path", ok("GET /containers/a%252fb/json")),
		no("path", ok("GET /info;x")), no("path", ok("GET /containers/a%00/json")), no("path", ok("GET /containers/a%0d%0ab/json")), no("path", ok("GET /containers/a%3fb/json")),
		no("api-version", ok("GET /v1.23/info")), no("api-version", ok("GET /v0.1/info")), no("api-version", ok("GET /v1.041/info")), no("api-version", ok("GET /v1/info")),
		no("api-version", ok("GET /v1.41.1/info")), no("api-version", ok("GET /v1../info")),
		no("query", ok("GET /containers/json?all=1;x=2")), no("query", ok("GET /containers/json?a=%zz")),
		no("plugin", ok("POST /plugins/pull?remote=x")), no("plugin", ok("GET /plugins/privileges?remote=x")), no("plugin", ok("POST /v1.41/plugins/x/enable")),
		no("swarm", ok("POST /swarm/init")), no("swarm", ok("GET /services")), no("swarm", ok("POST /secrets/create")), no("swarm", ok("GET /v1.41/nodes")),
		no("checkpoint", ok("POST /containers/x/checkpoints")), no("checkpoint", ok("POST /containers/x/start?checkpoint=x")), no("checkpoint", ok("POST /containers/x/start?checkpoint=&checkpoint-dir=/")),
		no("top-args", ok("GET /containers/x/top?ps_args=-o+pid%3DPID")), no("top-args", ok("GET /containers/x/top?ps_args=aux&ps_args=--x%0A")),
		no("build-remote", ok("POST /build?remote=https://x/y")), no("build-remote", ok("POST /build?remote=client-session&remote=git://x")), no("build-remote", ok("POST /images/create?fromSrc=http://x")),
		no("build-option", ok("POST /build?entitlements=x")),
		no("network-host", ok("POST /build?networkmode=host")), no("network-host", ok("POST /build?networkmode=none&networkmode=host")),
		no("security-opt", ok("POST /build?securityopt=seccomp%3Dunconfined")), no("cgroup-parent", ok("POST /build?cgroupparent=/x")),
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	socket = "/var/run/docker.sock"
	image  = "attack"
	// apiVersion is one that every engine since 20.10 speaks; some of the attempts need old ones.
	apiVersion = "/v1.41"
	// containerTime bounds a container of an attempt, and all attempts on the network that one makes.
	containerTime = 5 * time.Minute
)

// dockerAttempts are the attempts to get root by a container, or out of the box by the engine.
func dockerAttempts() []attempt {
	d := func(name string, run func(c *Config) (string, bool)) attempt {
		return attempt{group: "docker", name: name, want: always(refused), run: run}
	}
	list := []attempt{
		{group: "docker", name: "make an image and run a container of it (control)", want: always(works), run: control},
		{group: "docker", name: "bind the workspace; what root writes there is the agent's (control)", want: always(works), run: ownWorkspace},
		{group: "docker", name: "a container with Docker's socket is guarded, too (control)", want: always(works), run: socketInContainer},
	}
	for _, v := range []struct{ name, host string }{
		{"privileged", `"Privileged":true`},
		{"privileged, in other letters", `"pRIVILEGED":true`},
		{"privileged, in letters that fold", `"Privıleged":false,"PRIVILEGED":true`},
		{"privileged, twice", `"Privileged":false,"Privileged":true`},
		{"the box's user namespace", `"UsernsMode":"host"`},
		{"the box's processes", `"PidMode":"host"`},
		{"the box's network", `"NetworkMode":"host"`},
		{"the box's IPC", `"IpcMode":"host"`},
		{"the box's host name", `"UTSMode":"host"`},
		{"the box's cgroups", `"CgroupnsMode":"host"`},
		{"a parent cgroup", `"CgroupParent":"/"`},
		{"all capabilities", `"CapAdd":["ALL"]`},
		{"one capability more", `"CapAdd":["cap_sys_admin"]`},
		{"no seccomp", `"SecurityOpt":["seccomp=unconfined"]`},
		{"no seccomp, with a colon", `"SecurityOpt":["seccomp:unconfined"]`},
		{"a seccomp profile of one's own", `"SecurityOpt":["seccomp={\"defaultAction\":\"SCMP_ACT_ALLOW\"}"]`},
		{"no AppArmor", `"SecurityOpt":["apparmor=unconfined"]`},
		{"no masked paths", `"MaskedPaths":[]`},
		{"no read-only paths", `"ReadonlyPaths":[]`},
		{"a device", `"Devices":[{"PathOnHost":"/dev/fuse","PathInContainer":"/dev/fuse","CgroupPermissions":"rwm"}]`},
		{"all devices by a cgroup rule", `"DeviceCgroupRules":["a *:* rwm"]`},
		{"a GPU", `"DeviceRequests":[{"Count":-1,"Capabilities":[["gpu"]]}]`},
		{"bind /", `"Binds":["/:/x"]`},
		{"bind /etc", `"Binds":["/etc:/x:ro"]`},
		{"bind /proc", `"Binds":["/proc:/x"]`},
		{"bind the engine's data", `"Binds":["/var/lib/docker:/x"]`},
		{"bind the engine's socket", `"Binds":["/run/sandbox-agent-docker/docker.sock:/x"]`},
		{"bind by dots", `"Binds":["/workspace/../etc:/x"]`},
		{"bind by a mount", `"Mounts":[{"Type":"bind","Source":"/etc","Target":"/x"}]`},
		{"bind by a mount in other letters", `"mounts":[{"tYPE":"bind","sOURCE":"/etc","Target":"/x"}]`},
		{"bind by a volume's options", `"Mounts":[{"Type":"volume","Source":"v","Target":"/x",` +
			`"VolumeOptions":{"DriverConfig":{"Name":"local","Options":{"type":"none","o":"bind","device":"/etc"}}}}]`},
		{"mounts that propagate", `"Binds":["/workspace:/x:rshared"]`},
		{"a volume driver", `"VolumeDriver":"other"`},
		{"another runtime", `"Runtime":"/workspace/evil"`},
		{
			"a log driver that has the engine speak to the network",
			`"LogConfig":{"Type":"syslog","Config":{"syslog-address":"tcp://172.17.0.1:80"}}`,
		},
		{"annotations for the runtime", `"Annotations":{"run.oci.seccomp_bpf_data":"x"}`},
		{"no OOM killer", `"OomKillDisable":true`},
		{"an OOM score below boot's", `"OomScoreAdj":-1000`},
		{"an unknown field", `"TomorrowsPrivilege":true`},
	} {
		list = append(list, d(v.name, func(*Config) (string, bool) { return create(apiVersion, `"HostConfig":{`+v.host+`}`) }))
	}
	return append(list,
		d("privileged at the top, as old engines read it", func(*Config) (string, bool) { return create("/v1.24", `"Privileged":true`) }),
		d("binds at the top, as old engines read them", func(*Config) (string, bool) { return create("/v1.24", `"Binds":["/:/x"]`) }),
		d("a version from before the guard's time", func(*Config) (string, bool) { return create("/v1.18", `"HostConfig":{}`) }),
		d("a host configuration at the start", startWithBody),
		d("bind a link to /etc", linkToEtc),
		d("bind a file that becomes a link before the start", linkBeforeStart),
		d("bind a link that changes while it is looked at", raceOfLinks),
		d("a privileged exec", privilegedExec),
		d("a path with dots", func(*Config) (string, bool) { return createAt("/v1.41/x/../containers/create") }),
		d("a path with two slashes", func(*Config) (string, bool) { return createAt("//v1.41//containers//create") }),
		d("an encoded path", func(*Config) (string, bool) { return createAt("/v1.41/%63ontainers/create") }),
		d("a volume that is a folder of the box", func(*Config) (string, bool) {
			return post(apiVersion+"/volumes/create", `{"Name":"evil","Driver":"local","DriverOpts":{"type":"none","o":"bind","device":"/etc"}}`)
		}),
		d("a volume over the network", func(*Config) (string, bool) {
			return post(apiVersion+"/volumes/create",
				`{"Name":"evil2","Driver":"local","DriverOpts":{"type":"nfs","o":"addr=172.17.0.1","device":":/"}}`)
		}),
		d("a network on the box's own interface", func(*Config) (string, bool) {
			return post(apiVersion+"/networks/create", `{"Name":"evil","Driver":"macvlan","Options":{"parent":"eth0"}}`)
		}),
		d("a network with the address of the remote", func(c *Config) (string, bool) {
			return post(apiVersion+"/networks/create", `{"Name":"evil3","Driver":"bridge","IPAM":{"Config":[{"Subnet":"`+c.Host+`/30"}]}}`)
		}),
		d("swarm", func(*Config) (string, bool) {
			return post(apiVersion+"/swarm/init", `{"ListenAddr":"0.0.0.0:2377","AdvertiseAddr":"127.0.0.1"}`)
		}),
		d("a plugin", func(*Config) (string, bool) { return post(apiVersion+"/plugins/pull?remote=evil", `[]`) }),
		d("a build from a repository that root fetches", func(*Config) (string, bool) {
			return post(apiVersion+"/build?remote=http%3A%2F%2F172.17.0.1%2Fx.git", "")
		}),
		d("a build from a repository that BuildKit's git fetches", func(*Config) (string, bool) { return builtFromGit("build", "URL") }),
		d("a build with a named context that BuildKit's git fetches", func(*Config) (string, bool) {
			return builtFromGit("buildx", "build", "--build-context", "x=URL", "-f", "DOCKERFILE", "DIR")
		}),
		d("a build on the box's network", func(*Config) (string, bool) { return post(apiVersion+"/build?networkmode=host", "") }),
		d("the environment of boot by the list of processes", func(*Config) (string, bool) {
			return request(http.MethodGet, apiVersion+"/containers/x/top?ps_args=e%20-o%20pid%3DPID%2Cargs", "")
		}),
		attempt{group: "docker", name: "have the engine fetch a file", want: always(refused), run: func(*Config) (string, bool) {
			return engineFetches("/images/create?fromSrc=http%3A%2F%2F"+deniedName+"%2Fimporturl", "importurl")
		}},
		attempt{group: "docker", name: "have the engine speak to a registry", want: inModes(works, refused), run: func(c *Config) (string, bool) {
			return engineFetches("/images/create?fromImage="+c.Host+":5000%2Fpullregistry&tag=x", "pullregistry")
		}},
		attempt{group: "docker", name: "have the engine speak to the metadata service", want: always(refused), run: func(*Config) (string, bool) {
			return engineFetches("/images/create?fromImage=169.254.169.254:80%2Fmetadata&tag=x", "metadata")
		}},
	)
}

// client speaks to the guard as a program would that has no manners.
var client = http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", socket)
}}}

func docker(method, path, body string) (int, []byte, error) {
	return dockerRaw(method, path, "application/json", strings.NewReader(body))
}

func dockerRaw(method, path, kind string, body io.Reader) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), containerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://docker/", body)
	if err != nil {
		return 0, nil, err
	}
	// As it stands, not as a URL parser would have it.
	req.URL.Opaque = "//docker" + path
	req.Header.Set("Content-Type", kind)
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	return res.StatusCode, b, err
}

// request is an attempt by itself; through: the engine did it.
func request(method, path, body string) (string, bool) {
	code, b, err := docker(method, path, body)
	if err != nil {
		return short(err), false
	}
	return fmt.Sprintf("%d %s", code, message(b)), code < 300
}

func post(path, body string) (string, bool) { return request(http.MethodPost, path, body) }

func message(b []byte) string {
	var m struct{ Message string }
	if json.Unmarshal(b, &m) == nil && m.Message != "" {
		return m.Message
	}
	return strings.TrimSpace(string(b))
}

// create makes a container with these members of its body and removes it.
func create(version, members string) (string, bool) {
	return created(docker(http.MethodPost, version+"/containers/create", `{"Image":"`+image+`","Cmd":["version"],`+members+`}`))
}

func createAt(path string) (string, bool) {
	return created(docker(http.MethodPost, path, `{"Image":"`+image+`","Cmd":["version"],"HostConfig":{"Privileged":true}}`))
}

func created(code int, b []byte, err error) (string, bool) {
	if err != nil {
		return short(err), false
	}
	if code == http.StatusCreated {
		var r struct{ ID string }
		if json.Unmarshal(b, &r) == nil {
			_, _, _ = docker(http.MethodDelete, apiVersion+"/containers/"+r.ID+"?force=1", "")
		}
		return "made", true
	}
	return fmt.Sprintf("%d %s", code, message(b)), false
}

// makeImage makes an image of this very program and the given files.
func makeImage() error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	config, err := os.ReadFile(os.Args[2])
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"attack": self, "config.json": config} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	code, out, err := dockerRaw(http.MethodPost,
		apiVersion+"/images/create?fromSrc=-&repo="+image+"&changes=ENTRYPOINT+%5B%22%2Fattack%22%5D", "application/x-tar", &b)
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("make an image: %d %s %w", code, out, err)
	}
	return nil
}

// printed runs the program in a container until its log has output, at most three times: an engine that has to wait for
// a processor closes the log of a short command after a few seconds, whether or not the output has reached it.
func printed(host string, args ...string) (out string, err error) {
	for range 3 {
		if out, err = container(host, args...); err != nil || out != "" {
			break
		}
	}
	return out, err
}

// container runs the program in a container and returns its log.
func container(host string, args ...string) (string, error) {
	cmd, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	code, b, err := docker(http.MethodPost, apiVersion+"/containers/create",
		`{"Image":"`+image+`","Tty":true,"Cmd":`+string(cmd)+`,"HostConfig":{`+host+`}}`)
	if err != nil || code != http.StatusCreated {
		return "", fmt.Errorf("create: %d %s %w", code, message(b), err)
	}
	var r struct{ ID string }
	if err := json.Unmarshal(b, &r); err != nil {
		return "", err
	}
	path := apiVersion + "/containers/" + r.ID
	defer func() { _, _, _ = docker(http.MethodDelete, path+"?force=1", "") }()
	for _, step := range []string{"/start", "/wait"} {
		if code, b, err := docker(http.MethodPost, path+step, ""); err != nil || code >= 300 {
			return "", fmt.Errorf("%s: %d %s %w", step, code, message(b), err)
		}
	}
	_, b, err = docker(http.MethodGet, path+"/logs?stdout=1&stderr=1", "")
	return string(b), err
}

func control(*Config) (string, bool) {
	if err := makeImage(); err != nil {
		return short(err), false
	}
	out, err := printed("", "version")
	return strings.TrimSpace(out) + short(err), strings.Contains(out, "attack as uid 0")
}

func ownWorkspace(*Config) (string, bool) {
	if _, err := container(`"Binds":["/workspace:/w"]`, "touch", "/w/attack-touched"); err != nil {
		return err.Error(), false
	}
	defer os.Remove("/workspace/attack-touched")
	// Its owner may change it: it is the agent's.
	err := os.Chmod("/workspace/attack-touched", 0o600)
	return "the file is the agent's " + short(err), err == nil
}

func socketInContainer(*Config) (string, bool) {
	out, err := printed(`"Binds":["`+socket+`:`+socket+`"]`, "privileged")
	return strings.TrimSpace(out) + short(err), strings.Contains(out, "403")
}

func startWithBody(*Config) (string, bool) {
	code, b, err := docker(http.MethodPost, "/v1.24/containers/create", `{"Image":"`+image+`","Cmd":["version"]}`)
	var r struct{ ID string }
	if err != nil || code != http.StatusCreated || json.Unmarshal(b, &r) != nil {
		return fmt.Sprintf("create: %d %s %s", code, message(b), short(err)), code == http.StatusCreated
	}
	defer func() { _, _, _ = docker(http.MethodDelete, apiVersion+"/containers/"+r.ID+"?force=1", "") }()
	return post("/v1.24/containers/"+r.ID+"/start", `{"Privileged":true,"Binds":["/:/x"]}`)
}

func privilegedExec(*Config) (string, bool) {
	code, b, err := docker(http.MethodPost, apiVersion+"/containers/create", `{"Image":"`+image+`","Cmd":["sleep"]}`)
	var r struct{ ID string }
	if err != nil || code != http.StatusCreated || json.Unmarshal(b, &r) != nil {
		return fmt.Sprintf("create: %d %s %s", code, message(b), short(err)), true
	}
	defer func() { _, _, _ = docker(http.MethodDelete, apiVersion+"/containers/"+r.ID+"?force=1", "") }()
	if got, ok := post(apiVersion+"/containers/"+r.ID+"/start", ""); !ok {
		return "start: " + got, true
	}
	return post(apiVersion+"/containers/"+r.ID+"/exec", `{"Cmd":["/attack","version"],"privileged":true}`)
}

// engineFetches has the engine ask the outside for something; the outside says what arrived.
func engineFetches(path, token string) (string, bool) {
	_, b, err := docker(http.MethodPost, apiVersion+path, "")
	if err != nil {
		return short(err), false
	}
	return message(b), strings.Contains(string(b), "pong "+token) || strings.Contains(string(b), "arrived") ||
		strings.Contains(string(b), "HTTP response to HTTPS client")
}

package guard_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
)

// oldWrapper is what engines up to version 24 decode.
type oldWrapper struct {
	*container.Config
	InnerHostConfig       *container.HostConfig `json:"HostConfig,omitempty"`
	Cpuset                string                `json:",omitempty"`
	NetworkingConfig      *network.NetworkingConfig
	*container.HostConfig // honoured when InnerHostConfig is nil
}

// FuzzCreate lets nothing pass that the engine could read as forbidden.
func FuzzCreate(f *testing.F) {
	work := f.TempDir()
	work, err := filepath.EvalSymlinks(work)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range cases(work) {
		if strings.Contains(c.req, "/containers/create") && len(c.body) < 4096 {
			f.Add([]byte(strings.ReplaceAll(c.body, work, "/W")))
		}
	}
	mounts := filepath.Join(f.TempDir(), "mounts")
	g := guard.New(guard.Config{Binds: []string{work}, Mounts: mounts, Log: slog.New(slog.DiscardHandler)}).Unprivileged(boxTaken)
	f.Fuzz(func(t *testing.T, b []byte) {
		// The folder has another name in each process of the fuzzer.
		out, err := g.Create([]byte(strings.ReplaceAll(string(b), "/W", work)))
		if err != nil || out == nil {
			return
		}
		var now container.CreateRequest
		if json.Unmarshal(out, &now) == nil {
			forbid(t, work, mounts, out, now.HostConfig)
			forbidNetworks(t, out, now.NetworkingConfig)
		}
		var old oldWrapper
		if json.Unmarshal(out, &old) == nil {
			forbid(t, work, mounts, out, old.InnerHostConfig)
			forbid(t, work, mounts, out, old.HostConfig)
			forbidNetworks(t, out, old.NetworkingConfig)
		}
		// A forwarded request would be forwarded again as it is.
		shown := shownIn(t, g, out)
		again, err := g.Create(shown)
		if again := shownIn(t, g, again); err != nil || string(again) != string(shown) {
			t.Errorf("forwarded %s, and of that %s, %v", shown, again, err)
		}
		if err := g.Forget(); err != nil {
			t.Error(err)
		}
	})
}

func forbidNetworks(t *testing.T, out []byte, n *network.NetworkingConfig) {
	t.Helper()
	if n == nil {
		return
	}
	for name, e := range n.EndpointsConfig {
		if strings.EqualFold(name, "host") || e != nil && e.IPAMConfig != nil && len(e.IPAMConfig.LinkLocalIPs) > 0 {
			t.Errorf("endpoint %q: %s", name, out)
		}
	}
}

func shownIn(t *testing.T, g *guard.Guard, b []byte) []byte {
	t.Helper()
	b, err := io.ReadAll(g.Shown(bytes.NewReader(b)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func forbid(t *testing.T, work, mounts string, out []byte, h *container.HostConfig) {
	t.Helper()
	if h == nil {
		return
	}
	for what, bad := range map[string]bool{
		"privileged":  h.Privileged,
		"userns":      h.UsernsMode != "",
		"pid":         h.PidMode != "" && !h.PidMode.IsContainer(),
		"ipc":         h.IpcMode.IsHost() || !h.IpcMode.Valid(),
		"uts":         h.UTSMode != "",
		"cgroupns":    h.CgroupnsMode != "" && !h.CgroupnsMode.IsPrivate(),
		"network":     h.NetworkMode.IsHost(),
		"devices":     len(h.Devices)+len(h.DeviceCgroupRules)+len(h.DeviceRequests) > 0,
		"masked":      h.MaskedPaths != nil || h.ReadonlyPaths != nil,
		"cgroup":      h.CgroupParent != "" || h.Cgroup != "",
		"annotations": len(h.Annotations) > 0,
		"oom":         h.OomScoreAdj < 0 || h.OomKillDisable != nil && *h.OomKillDisable,
		"log":         !slices.Contains([]string{"", "json-file", "local", "none"}, h.LogConfig.Type),
		"runtime":     !slices.Contains([]string{"", "runc", "crun", "io.containerd.runc.v2"}, h.Runtime),
		"driver":      h.VolumeDriver != "" && h.VolumeDriver != "local",
	} {
		if bad {
			t.Errorf("%s: %s", what, out)
		}
	}
	for _, c := range h.CapAdd {
		if slices.Contains([]string{"SYS_ADMIN", "ALL", "NET_ADMIN", "SYS_PTRACE", "SYS_MODULE"}, strings.TrimPrefix(strings.ToUpper(c), "CAP_")) {
			t.Errorf("capability %s: %s", c, out)
		}
	}
	for _, o := range h.SecurityOpt {
		if strings.Contains(o, "unconfined") && !strings.HasPrefix(o, "label") || strings.HasPrefix(o, "writable-cgroups") || strings.Contains(o, "{") && !strings.HasPrefix(o, "label") {
			t.Errorf("security option %s: %s", o, out)
		}
	}
	for _, b := range h.Binds {
		part := strings.Split(b, ":")
		if len(part) > 1 && strings.Contains(part[0], "/") || len(part) > 2 && strings.Contains(part[2], "shared") {
			t.Errorf("bind %s: %s", b, out)
		}
	}
	forbidMounts(t, work, mounts, out, h.Mounts)
}

func forbidMounts(t *testing.T, work, points string, out []byte, mounts []mount.Mount) {
	t.Helper()
	for _, m := range mounts {
		bad := !slices.Contains([]mount.Type{mount.TypeBind, mount.TypeVolume, mount.TypeTmpfs, mount.TypeImage}, m.Type)
		if m.Type == mount.TypeBind {
			socket := m.Source == "/var/run/docker.sock" || m.Source == "/run/docker.sock"
			bad = bad || !socket && filepath.Dir(m.Source) != points
			// Mounts as they would be made; none for a missing source.
			if target, err := os.Readlink(m.Source); err == nil && target != work && !strings.HasPrefix(target, work+"/") {
				bad = true
			}
		}
		if o := m.BindOptions; o != nil {
			bad = bad || strings.Contains(string(o.Propagation), "shared") || o.CreateMountpoint
		}
		if o := m.VolumeOptions; o != nil && o.DriverConfig != nil {
			d := o.DriverConfig
			bad = bad || d.Name != "" && d.Name != "local" || len(d.Options) > 0 && d.Options["type"] != "tmpfs" || strings.Contains(d.Options["o"], "bind")
		}
		if bad {
			t.Errorf("mount %+v: %s", m, out)
		}
	}
}

// engineRoutes are those of dockerd 28.5 in their order, without the ones that only exist in a swarm's or plugin's routers.
var engineRoutes = []string{
	"POST /commit", "HEAD /containers/{}/archive", "GET /containers/json", "GET /containers/{}/export", "GET /containers/{}/changes", "GET /containers/{}/json",
	"GET /containers/{}/top", "GET /containers/{}/logs", "GET /containers/{}/stats", "GET /containers/{}/attach/ws", "GET /exec/{}/json", "GET /containers/{}/archive",
	"POST /containers/create", "POST /containers/{}/kill", "POST /containers/{}/pause", "POST /containers/{}/unpause", "POST /containers/{}/restart",
	"POST /containers/{}/start", "POST /containers/{}/stop", "POST /containers/{}/wait", "POST /containers/{}/resize", "POST /containers/{}/attach",
	"POST /containers/{}/exec", "POST /exec/{}/start", "POST /exec/{}/resize", "POST /containers/{}/rename", "POST /containers/{}/update",
	"POST /containers/prune", "PUT /containers/{}/archive", "DELETE /containers/{}", "GET /containers/{}/checkpoints", "POST /containers/{}/checkpoints",
	"GET /images/json", "GET /images/search", "GET /images/get", "GET /images/{}/get", "GET /images/{}/history", "GET /images/{}/json",
	"POST /images/load", "POST /images/create", "POST /images/{}/push", "POST /images/{}/tag", "POST /images/prune", "DELETE /images/{}",
	"GET /_ping", "HEAD /_ping", "GET /events", "GET /info", "GET /version", "GET /system/df", "POST /auth",
	"GET /volumes", "GET /volumes/{}", "POST /volumes/create", "POST /volumes/prune", "PUT /volumes/{}", "DELETE /volumes/{}",
	"POST /build", "POST /build/prune", "POST /build/cancel", "POST /session", "POST /grpc", "GET /distribution/{}/json",
	"GET /plugins", "GET /plugins/{}/json", "GET /plugins/privileges", "DELETE /plugins/{}", "POST /plugins/{}/enable", "POST /plugins/pull", "POST /plugins/create",
	"GET /networks", "GET /networks/", "GET /networks/{}", "POST /networks/create", "POST /networks/{}/connect", "POST /networks/{}/disconnect",
	"POST /networks/prune", "DELETE /networks/{}",
}

// engineRoute is the handler that the engine chooses.
func engineRoute(method, p string) string {
	for _, route := range engineRoutes {
		m, template, _ := strings.Cut(route, " ")
		re := "^(/v[0-9.]+)?" + strings.ReplaceAll(regexp.QuoteMeta(template), `\{\}`, ".*") + "$"
		if m == method && regexp.MustCompile(re).MatchString(p) {
			return route
		}
	}
	return ""
}

// FuzzPath checks that the engine takes a forwarded path for what the guard took it for.
func FuzzPath(f *testing.F) {
	for _, c := range endpointCases() {
		method, target, _ := strings.Cut(c.req, " ")
		target, _, _ = strings.Cut(target, "?")
		f.Add(method, target)
	}
	for _, r := range engineRoutes {
		method, target, _ := strings.Cut(r, " ")
		f.Add(method, strings.ReplaceAll(target, "{}", "x"))
		f.Add(method, "/v1.41"+strings.ReplaceAll(target, "{}", "create/json"))
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		pattern, canonical, err := guard.Locate(method, u.Path)
		if err != nil {
			return
		}
		decoded, err := url.PathUnescape(canonical)
		if err != nil || path.Clean(decoded) != decoded || strings.ContainsAny(decoded, "%?#;\\\x00") {
			t.Fatalf("%q is forwarded as %q", target, canonical)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://docker"+canonical, nil)
		if err != nil || r.URL.Path != decoded {
			t.Fatalf("%q is read again as %+v, %v", canonical, r.URL, err)
		}
		want := method + " " + strings.ReplaceAll(strings.ReplaceAll(pattern, "**", "{}"), "*", "{}")
		if got := engineRoute(method, decoded); got != want {
			t.Errorf("%s %q: the engine serves %q, the guard judged %q", method, canonical, got, want)
		}
	})
}

// Every field of the engine's structs is in the tables, so that the clients of its version work.
func TestFieldsAreKnown(t *testing.T) {
	for _, c := range []struct {
		req, before, after string
		typ                reflect.Type
	}{
		{"create", "{", "}", reflect.TypeFor[container.Config]()},
		{"create", `{"HostConfig":{`, "}}", reflect.TypeFor[container.HostConfig]()},
		{"create", `{"HostConfig":{"LogConfig":{`, "}}}", reflect.TypeFor[container.LogConfig]()},
		{"create", `{"HostConfig":{"Mounts":[{"Type":"tmpfs","Target":"/x",`, "}]}}", reflect.TypeFor[mount.Mount]()},
		{"create", `{"HostConfig":{"Mounts":[{"Type":"tmpfs","Target":"/x","BindOptions":{`, "}}]}}", reflect.TypeFor[mount.BindOptions]()},
		{"create", `{"HostConfig":{"Mounts":[{"Type":"tmpfs","Target":"/x","VolumeOptions":{`, "}}]}}", reflect.TypeFor[mount.VolumeOptions]()},
		{"create", `{"HostConfig":{"Mounts":[{"Type":"tmpfs","Target":"/x","TmpfsOptions":{`, "}}]}}", reflect.TypeFor[mount.TmpfsOptions]()},
		{"create", `{"NetworkingConfig":{"EndpointsConfig":{"n":{`, "}}}}", reflect.TypeFor[network.EndpointSettings]()},
		{"create", `{"NetworkingConfig":{"EndpointsConfig":{"n":{"IPAMConfig":{`, "}}}}}", reflect.TypeFor[network.EndpointIPAMConfig]()},
		{"exec", "{", "}", reflect.TypeFor[container.ExecOptions]()},
		{"exec start", "{", "}", reflect.TypeFor[container.ExecStartOptions]()},
		{"update", "{", "}", reflect.TypeFor[container.UpdateConfig]()},
		{"volume", "{", "}", reflect.TypeFor[volume.CreateOptions]()},
		{"network", "{", "}", reflect.TypeFor[network.CreateRequest]()},
		{"network", `{"IPAM":{`, "}}", reflect.TypeFor[network.IPAM]()},
		{"network", `{"IPAM":{"Config":[{`, "}]}}", reflect.TypeFor[network.IPAMConfig]()},
		{"connect", "{", "}", reflect.TypeFor[network.ConnectOptions]()},
	} {
		g := guard.New(guard.Config{Log: slog.New(slog.DiscardHandler)})
		for _, name := range fieldNames(c.typ) {
			// No field takes this value, or it takes any; only one that is unknown is refused for that.
			out, err := g.Judge(c.req, c.before+`"`+name+`":[["?"]]`+c.after)
			if err != nil && strings.Contains(err.Error(), "unknown-field") || err == nil && !strings.Contains(string(out), name) {
				t.Errorf("%s is not known: %s %v", name, out, err)
			}
		}
		if strings.HasPrefix(c.req, "exec") {
			if out, err := g.Judge(c.req, `{"Zzz":[["?"]]}`); err != nil || strings.Contains(string(out), "Zzz") {
				t.Errorf("an unknown field of %s becomes %s %v", c.req, out, err)
			}
			continue
		}
		if _, err := g.Judge(c.req, c.before+`"Zzz":[["?"]]`+c.after); err == nil || !strings.Contains(err.Error(), "unknown-field") {
			t.Errorf("%s%s: an unknown field passes: %v", c.before, c.after, err)
		}
	}
}

// fieldNames are the keys that encoding/json reads.
func fieldNames(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			out = append(out, fieldNames(f.Type)...)
		case name == "":
			out = append(out, f.Name)
		default:
			out = append(out, name)
		}
	}
	return out
}

// Names are compared as encoding/json compares them.
func TestFold(t *testing.T) {
	for a, b := range map[string]string{"Uſernsmode": "UsernsMode", "\u212Aey": "Key", "PRIVILEGED": "Privileged"} {
		if guard.Fold(a) != guard.Fold(b) {
			t.Errorf("%q is not %q", a, b)
		}
	}
	if guard.Fold("ı") == guard.Fold("i") {
		t.Error("an i without its dot is no i to encoding/json")
	}
}

// Package doctor checks whether this machine can run tasks, with a hint for each problem. It changes nothing permanently.
package doctor

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Status is the result of a check.
type Status string // of a check

// Statuses. Only Fail means that runs will not work.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is a check with its result.
type Check struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

const (
	toolTimeout  = 10 * time.Second // of asking a program for its version
	probeTimeout = 60 * time.Second // of a temporary container
	// A run needs disk space for the image's layers, an inner engine and a clone.
	diskWarn = 10 << 30
	diskFail = 2 << 30
)

// Doctor checks a machine.
type Doctor struct {
	Engine    runtime.Runtime // if nil, OpenError is the reason
	OpenError error
	Images    func(context.Context) ([]string, error) // names of the existing default images
	StateDir  string
	Owner     string
}

// Run runs all checks, in the order in which a run would meet the problems.
func (d *Doctor) Run(ctx context.Context) []Check {
	var list []Check
	add := func(c Check) { list = append(list, c) }
	info, ok := d.engine(ctx, add)
	if ok {
		d.boxes(ctx, info, add)
	}
	d.state(add)
	if ok && info.Local && info.RootDir != "" {
		d.disk("engine's disk", existing(info.RootDir), add)
	}
	d.tool(ctx, "git", []string{"git", "--version"}, Fail, "install git: local repositories and credentials need it", add)
	d.tool(ctx, "gh", []string{"gh", "--version"}, OK, "", add)
	return list
}

func (d *Doctor) engine(ctx context.Context, add func(Check)) (runtime.Info, bool) {
	if d.Engine == nil {
		add(Check{"engine", Fail, d.OpenError.Error(), "check DOCKER_HOST and the docker context"})
		return runtime.Info{}, false
	}
	info, err := d.Engine.Info(ctx)
	if err != nil {
		hint := "start the Docker engine, or point DOCKER_HOST at one that runs"
		if denied, ok := errors.AsType[*runtime.DeniedError](err); ok {
			hint = denied.Hint()
		}
		add(Check{"engine", Fail, err.Error(), hint})
		return info, false
	}
	add(Check{"engine", OK, fmt.Sprintf("%s at %s (API %s, %s %s)", info.Version, info.Host, info.APIVersion, info.OSType, info.Arch), ""})
	if info.OSType != "linux" {
		add(Check{"containers", Fail, "the engine runs " + info.OSType + " containers", "a sandbox needs Linux containers"})
		return info, false
	}
	add(Check{"cgroup", OK, fmt.Sprintf("version %d", info.CgroupVersion), ""})
	if info.Rootless {
		add(Check{
			"rootless", Warn, "the engine is rootless: an inner engine may not start in it",
			"use an engine that runs as root, or one with an OCI runtime made for nesting (sysbox-runc)",
		})
	}
	return info, true
}

// boxes runs temporary containers of the box's image.
func (d *Doctor) boxes(ctx context.Context, info runtime.Info, add func(Check)) {
	names, err := d.Images(ctx)
	switch {
	case err != nil:
		add(Check{"image", Warn, err.Error(), ""})
		return
	case len(names) == 0:
		add(Check{"image", Warn, "the default image is not built yet", "the first run builds it, or now: sandbox-agent image build"})
		return
	}
	add(Check{"image", OK, names[0], ""})
	p, ok := d.Engine.(runtime.Prober)
	if !ok {
		return
	}
	for _, iso := range []string{workorder.IsolationConfined, workorder.IsolationPrivileged} {
		out, err := d.probe(ctx, p, info, names[0], iso, "", []string{"/bin/sh", "-c", "grep CapEff /proc/self/status; test -c /dev/fuse " +
			"&& echo fuse"})
		c := Check{Name: "isolation " + iso, Status: OK, Message: describe(out)}
		if err != nil {
			c.Status, c.Message = Warn, err.Error()
			c.Hint = "use the other isolation: --isolation " + other(iso)
			if iso == workorder.IsolationConfined {
				c.Status = Fail
			}
		}
		add(c)
	}
	add(d.harnesses(ctx, p, info, names[0]))
	add(d.reach(ctx, p, info, names[0]))
	add(d.network(ctx, p, info, names[0]))
	add(d.ground(ctx, p, info, names[0]))
	d.runtimes(ctx, p, info, names[0], add)
}

func other(iso string) string {
	if iso == workorder.IsolationConfined {
		return workorder.IsolationPrivileged
	}
	return workorder.IsolationConfined
}

func describe(out string) string {
	caps := "unknown"
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps = strings.TrimSpace(v)
		}
	}
	s := "works, capabilities " + caps
	if strings.Contains(out, "fuse\n") {
		return s + ", /dev/fuse"
	}
	return s + ", no /dev/fuse"
}

func (d *Doctor) probe(ctx context.Context, p runtime.Prober, info runtime.Info, image, iso, oci string, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.Probe(ctx, runtime.ContainerSpec{
		Image: image, Isolation: iso, OCIRuntime: oci, Fuse: info.HasFuse(), CgroupV2: info.CgroupVersion == 2, Seccomp: info.Seccomp,
		// Without a task label, so that a probe is not collected like a box.
		Labels: map[string]string{"sandbox-agent.probe": d.Owner},
	}, argv)
}

// reach checks that a box can connect to this process, as to fetch a local repository. A firewall on the host often prevents it.
func (d *Doctor) reach(ctx context.Context, p runtime.Prober, info runtime.Info, image string) Check {
	const word = "sandbox-agent-was-reached"
	addr := "127.0.0.1:0"
	if info.Local && info.Gateway != "" {
		addr = info.Gateway + ":0"
	}
	c := Check{Name: "local repository", Status: OK, Message: "a sandbox reaches this machine at " + strings.TrimSuffix(addr, ":0")}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		c.Status, c.Message, c.Hint = Warn, err.Error(), "--repo PATH will not work; push the repository and give its URL"
		if info.Rootless {
			c.Hint = runtime.RootlessHint
		}
		return c
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, word+"\n")
			conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err == nil {
		var out string
		out, err = d.probe(ctx, p, info, image, workorder.IsolationConfined, "",
			[]string{"/bin/bash", "-c", "exec 3<>/dev/tcp/host.docker.internal/" + port + " && timeout 5 cat <&3"})
		if err == nil && !strings.Contains(out, word) {
			err = errors.New("no answer: " + strings.TrimSpace(out))
		}
	}
	if err != nil {
		c.Status, c.Message = Warn, "a sandbox cannot reach this machine at "+addr+": "+err.Error()
		if info.Rootless {
			c.Hint = runtime.RootlessHint
			return c
		}
		c.Hint = "allow connections from the docker bridge in the firewall (for example: iptables -I INPUT -i docker0 -j ACCEPT)"
	}
	return c
}

// state checks that this user can write the state directory.
func (d *Doctor) state(add func(Check)) {
	dir := existing(d.StateDir)
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		add(Check{
			"state directory", Fail, fmt.Sprintf("this user cannot create or write %s: %s: %v", d.StateDir, dir, err),
			"name a directory of your own with SANDBOX_AGENT_STATE_DIR, or a HOME that you may write",
		})
		return
	}
	d.disk("state directory", dir, add)
}

func (d *Doctor) disk(name, dir string, add func(Check)) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		add(Check{name, Warn, fmt.Sprintf("%s: %v", dir, err), ""})
		return
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	c := Check{name, OK, fmt.Sprintf("%d GB free at %s", free>>30, dir), ""}
	switch {
	case free < diskFail:
		c.Status, c.Hint = Fail, "free some space: sandbox-agent gc --images, docker system prune"
	case free < diskWarn:
		c.Status, c.Hint = Warn, "a run can need several gigabytes: sandbox-agent gc --images frees some"
	}
	add(c)
}

// existing returns the nearest existing parent of dir.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func (d *Doctor) tool(ctx context.Context, name string, argv []string, missing Status, hint string, add func(Check)) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	out, err := proc.Output(ctx, proc.Spec{Argv: argv})
	if err != nil {
		add(Check{name, missing, "not installed", hint})
		return
	}
	first, _, _ := strings.Cut(string(out), "\n")
	add(Check{name, OK, first, ""})
}

// harnesses lists the agents of the image, as recorded by its build.
func (d *Doctor) harnesses(ctx context.Context, p runtime.Prober, info runtime.Info, image string) Check {
	out, err := d.probe(ctx, p, info, image, workorder.IsolationConfined, "", []string{"/bin/cat", "/usr/share/sandbox-agent/image.json"})
	var about struct{ Contents, Missing map[string]string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &about)
	}
	if err != nil {
		return Check{
			"harnesses", Warn, "the image has no list of its agents: " + err.Error(),
			"rebuild it: sandbox-agent image build --rebuild",
		}
	}
	var there, added, missing []string
	for _, name := range workorder.Harnesses() {
		version := strings.IndexFunc(about.Contents[name], func(r rune) bool { return r >= '0' && r <= '9' })
		switch {
		case name == workorder.HarnessCommand: // any program
			there = append(there, name)
		case version >= 0:
			there = append(there, name+" "+strings.Fields(about.Contents[name][version:])[0])
		case about.Missing[name] != "":
			missing = append(missing, name)
		default:
			added = append(added, name)
		}
	}
	c := Check{"harnesses", OK, strings.Join(there, ", "), ""}
	if len(added) > 0 {
		c.Message += "; added to the image when needed: " + strings.Join(added, ", ")
	}
	if len(missing) > 0 {
		c.Status, c.Message = Warn, c.Message+"; without "+strings.Join(missing, ", ")
		c.Hint = "the package registry lacked them when the image was built: sandbox-agent image build --with " + strings.Join(missing, ",") +
			" --rebuild tries again, or a setup command installs them"
	}
	return c
}

// firewall has the rules of a restricted network; a test compares them with a box's.
//
//go:embed firewall.nft
var firewall string

// network checks that a confined box can have the network policy's firewall.
func (d *Doctor) network(ctx context.Context, p runtime.Prober, info runtime.Info, image string) Check {
	out, err := d.probe(ctx, p, info, image, workorder.IsolationConfined, "",
		[]string{"/bin/sh", "-c", "nft -f - <<'END' && echo in-force\n" + firewall + "END\n"})
	c := Check{Name: "network policy", Status: OK, Message: "nftables works in a confined sandbox: network can be full, restricted or none"}
	if err == nil && strings.Contains(out, "in-force") {
		return c
	}
	c.Status, c.Message = Fail, "a confined sandbox cannot have its firewall: "+strings.TrimSpace(out)
	if err != nil {
		c.Message = "a confined sandbox cannot have its firewall: " + err.Error()
	}
	c.Hint = "the engine's kernel needs nf_tables (modules nft_redir, nft_masq, nft_fib_inet, nft_reject_inet, nft_log, nft_ct), and a " +
		"custom image needs the program nft"
	return c
}

// ground checks that a confined box can divide its control groups and protect the machine's kernel settings.
func (d *Doctor) ground(ctx context.Context, p runtime.Prober, info runtime.Info, image string) Check {
	out, err := d.probe(ctx, p, info, image, workorder.IsolationConfined, "",
		[]string{"/bin/sh", "-c", "cat /proc/filesystems; exec " + workorder.EntrypointIn + " ground"})
	c := Check{Name: "limits and settings", Status: OK, Message: "the agent's limits are separate from boot's; the machine's " +
		"kernel settings are read-only in a confined sandbox"}
	known, out := mountable(out)
	c.Message += "; root in it, which only the sandbox's own programs are, could mount " +
		strings.Join(append(known, "a /proc of its own"), ", ")
	if !info.Seccomp {
		c.Message += ", and the engine filters no system calls"
	}
	if err != nil {
		c.Status, c.Message = Warn, "a confined sandbox is less isolated than it should be: "+strings.TrimSpace(out+" "+err.Error())
		c.Hint = "the kernel needs cgroup namespaces (4.6), and the engine has to mount /sys/fs/cgroup; runs work, each with this warning"
	}
	return c
}

// reaching are kernel file systems that change or show the whole machine.
var reaching = []string{"binfmt_misc", "bpf", "configfs", "debugfs", "efivarfs", "pstore", "securityfs", "tracefs"}

// mountable returns the names of reaching that /proc/filesystems lists, and the output that follows the list.
func mountable(out string) (known []string, rest string) {
	for line := range strings.Lines(out) {
		flag, name, ok := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		switch {
		case !ok || flag != "" && flag != "nodev":
			rest += line
		case slices.Contains(reaching, name):
			known = append(known, name)
		}
	}
	return known, rest
}

// strong are OCI runtimes that isolate a box better than a shared kernel, by their usual names.
var strong = []struct{ name, what string }{
	{"sysbox-runc", "a user namespace for the whole sandbox"},
	{"kata", "a virtual machine for the sandbox"},
	{"runsc", "gVisor: a kernel of its own in user space"},
}

// runtimes reports the engine's other OCI runtimes, and whether a box starts with each.
func (d *Doctor) runtimes(ctx context.Context, p runtime.Prober, info runtime.Info, image string, add func(Check)) {
	for _, s := range strong {
		i := slices.IndexFunc(info.Runtimes, func(r string) bool {
			return r == s.name || strings.HasPrefix(r, s.name+"-") || strings.HasPrefix(r, "io.containerd."+s.name+".")
		})
		if i < 0 {
			add(Check{"oci runtime " + s.name, OK, "not installed: the engine does not know it (" + s.what + ")", ""})
			continue
		}
		name := info.Runtimes[i]
		c := Check{"oci runtime " + s.name, OK, "selectable: --oci-runtime " + name + " (" + s.what + ")", ""}
		if _, err := d.probe(ctx, p, info, image, workorder.IsolationConfined, name, []string{"/bin/true"}); err != nil {
			c.Status, c.Message, c.Hint = Warn, "the engine knows "+name+", but a sandbox does not start with it: "+err.Error(),
				"fix the installation of the runtime, or omit --oci-runtime"
		}
		add(c)
	}
}

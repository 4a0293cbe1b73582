package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// root are the attempts to become root in the box, or to reach what is root's.
func root() []attempt {
	r := func(name string, run func(c *Config) (string, bool)) attempt {
		return attempt{group: "root", name: name, want: always(refused), run: run}
	}
	command := func(name string, argv ...string) attempt {
		return r(name, func(*Config) (string, bool) { return execute(argv...) })
	}
	write := func(path string) attempt {
		return r("write "+path, func(*Config) (string, bool) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return short(err), false
			}
			return "opened for writing", f.Close() == nil
		})
	}
	return []attempt{
		{group: "root", name: "work as a user (control)", want: always(works), run: func(*Config) (string, bool) {
			err := os.WriteFile("/tmp/attack-control", []byte("x"), 0o600)
			return fmt.Sprintf("uid %d", os.Getuid()), err == nil && os.Getuid() != 0
		}},
		command("sudo", "sudo", "-n", "id"),
		command("su", "su", "-c", "id"),
		r("a program with the setuid bit", setuid),
		r("setuid(0)", func(*Config) (string, bool) {
			err := unix.Setuid(0)
			return fmt.Sprintf("%v", err), err == nil
		}),
		r("capabilities of this process", func(*Config) (string, bool) {
			eff, err := status(os.Getpid(), "CapEff")
			return eff + short(err), strings.Trim(eff, "0") != "" || err != nil
		}),
		r("new privileges by exec", func(*Config) (string, bool) {
			v, err := status(os.Getpid(), "NoNewPrivs")
			return "no_new_privs " + v + short(err), v != "1"
		}),
		r("root's processes: environment", func(*Config) (string, bool) { return ofRoot("environ") }),
		r("root's processes: memory", func(*Config) (string, bool) { return ofRoot("mem") }),
		r("root's processes: open files", func(*Config) (string, bool) { return ofRoot("fd") }),
		r("root's processes: root folder", func(*Config) (string, bool) { return ofRoot("root/root") }),
		r("root's processes: trace", func(*Config) (string, bool) {
			err := unix.PtraceAttach(1)
			return short(err), err == nil
		}),
		r("root's processes: kill PID 1", func(*Config) (string, bool) {
			err := unix.Kill(1, unix.SIGTERM)
			return short(err), err == nil
		}),
		r("root's processes: kill all", func(*Config) (string, bool) {
			for pid := range strings.SplitSeq(pidsOf("0"), " ") {
				if n, err := strconv.Atoi(pid); err == nil && unix.Kill(n, 0) == nil {
					return "may signal process " + pid, true
				}
			}
			return "none can be signalled", false
		}),
		write("/etc/passwd"), write("/etc/hosts"), write("/etc/resolv.conf"), write("/etc/gitconfig"), write("/usr/local/bin/entrypoint"),
		write("/proc/sys/kernel/core_pattern"), write("/proc/sysrq-trigger"), write("/proc/sys/net/ipv4/ip_forward"),
		write("/sys/fs/cgroup/memory/memory.limit_in_bytes"), write("/sys/fs/cgroup/cgroup.procs"), write("/sys/kernel/uevent_helper"),
		r("read files of root's", rootsFiles),
		r("mount a file system", func(*Config) (string, bool) {
			err := unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "")
			return short(err), err == nil
		}),
		r("make a device of the host's disk", func(*Config) (string, bool) {
			err := unix.Mknod("/tmp/attack-disk", unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0)))
			return short(err), err == nil
		}),
		r("open devices of the host", devices),
		r("load a kernel module", func(*Config) (string, bool) {
			err := unix.FinitModule(0, "", 0)
			return short(err), err == nil
		}),
		r("set the clock", func(*Config) (string, bool) {
			err := unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: time.Now().Unix()})
			return short(err), err == nil
		}),
		r("set the host name", func(*Config) (string, bool) {
			err := unix.Sethostname([]byte("attack"))
			return short(err), err == nil
		}),
		r("join the namespaces of PID 1", func(*Config) (string, bool) {
			f, err := os.Open("/proc/1/ns/net")
			if err != nil {
				return short(err), false
			}
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			return short(err), err == nil
		}),
		command("switch the network policy off", "nft", "flush", "ruleset"),
		command("read the network policy", "nft", "list", "ruleset"),
		command("change an interface", "ip", "link", "set", "eth0", "mtu", "1000"),
		command("add an address", "ip", "addr", "add", "192.0.2.77/32", "dev", "lo"),
		r("the inner engine's own socket", func(*Config) (string, bool) { return connect("/run/sandbox-agent-docker/docker.sock") }),
		r("the inner containerd's socket", func(*Config) (string, bool) {
			c, err := dial("unix", "/run/sandbox-agent-engine/containerd.sock") // mounted after the agent's place was made: it is not there
			if err != nil {
				return short(err), false
			}
			return "connected", c.Close() == nil
		}),
		r("the layers of the inner engine", func(*Config) (string, bool) {
			entries, err := os.ReadDir("/var/lib/docker/" + remapped + "/overlay2")
			return fmt.Sprintf("%d entries %s", len(entries), short(err)), err == nil || errors.Is(err, fs.ErrNotExist)
		}),
		r("a layer of the inner engine, by its path", layer),
		r("the layer cache of other boxes", func(*Config) (string, bool) {
			err := os.WriteFile(workorder.CacheDir+"/attack", nil, 0o600)
			return short(err), err == nil || errors.Is(err, fs.ErrNotExist)
		}),
		r("a program left by setup puts links where root opens files", raced),
		r("write the run's record", func(*Config) (string, bool) {
			err := os.WriteFile(workorder.OutDir+"/"+workorder.EventsFile, []byte("{}"), 0o600)
			return short(err), err == nil || errors.Is(err, fs.ErrNotExist)
		}),
	}
}

// layer writes into the layers of an image, whose directories belong to the agent's user, and whose paths every engine tells.
func layer(*Config) (string, bool) {
	out, made := execute("sh", "-c",
		`tar -C /etc -c hostname | docker import - attack-layer >/dev/null && docker image inspect -f '{{.GraphDriver.Data.UpperDir}}' `+
			`attack-layer`)
	if !made {
		return "no image: " + out, true
	}
	paths := strings.Fields(out)
	for _, dir := range paths {
		if os.WriteFile(dir+"/attack", nil, 0o600) == nil {
			return "wrote to " + dir, true
		}
	}
	return fmt.Sprintf("%d folders, nothing", len(paths)), len(paths) == 0
}

// remapped is the directory that the inner engine names after the ids of its root.
const remapped = "1000.1000"

// execute runs a command; through: it succeeded.
func execute(argv ...string) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := proc.Output(ctx, proc.Spec{Argv: argv})
	if err != nil {
		return strings.ReplaceAll(err.Error(), "\n", " "), false
	}
	return strings.TrimSpace(string(out)), true
}

// setuid runs programs that would be another user's if the bit counted.
func setuid(*Config) (string, bool) {
	tried := 0
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/lib", "/bin", "/usr/local/bin"} {
		var found string
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // unreadable, so not executable
			}
			if i, err := d.Info(); err != nil || i.Mode()&os.ModeSetuid == 0 {
				return nil
			}
			tried++
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			c, err := proc.Start(ctx, proc.Spec{Argv: []string{p}})
			if err != nil {
				return nil
			}
			if uids, err := status(c.PID(), "Uid"); err == nil {
				if f := strings.Fields(uids); len(f) > 1 && f[1] == "0" {
					found = p
				}
			}
			cancel()
			_ = c.Wait()
			return nil
		})
		if err != nil || found != "" {
			return found + " runs as root " + short(err), found != ""
		}
	}
	return fmt.Sprintf("%d programs, none became root", tried), false
}

// status is a field of /proc/PID/status.
func status(pid int, field string) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", errors.New("no " + field)
}

func pidsOf(uid string) string {
	var list []string
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		if u, err := status(pid, "Uid"); err == nil && strings.Fields(u)[0] == uid {
			list = append(list, filepath.Base(d))
		}
	}
	return strings.Join(list, " ")
}

// ofRoot opens something of every process of root's.
func ofRoot(what string) (string, bool) {
	n := 0
	for pid := range strings.SplitSeq(pidsOf("0"), " ") {
		n++
		p := "/proc/" + pid + "/" + what
		if f, err := os.Open(p); err == nil {
			_, rerr := f.Read(make([]byte, 1))
			_, derr := f.ReadDir(1)
			f.Close()
			if rerr == nil || derr == nil || what == "mem" {
				return p + " can be read", true
			}
		}
	}
	return fmt.Sprintf("%d processes, nothing", n), n == 0
}

func rootsFiles(*Config) (string, bool) {
	for _, p := range []string{
		"/etc/shadow", "/root", "/var/lib/sandbox-agent/state", "/dev/shm/sandbox-agent-ssh", "/proc/kcore", "/proc/1/maps",
		"/var/lib/docker", "/var/log/dockerd.log", "/run/sandbox-agent-docker", "/run/sandbox-agent-engine/daemon.json", "/sys/kernel/debug",
	} {
		f, err := os.Open(p)
		if err != nil {
			continue
		}
		_, rerr := f.Read(make([]byte, 1))
		_, derr := f.ReadDir(1)
		f.Close()
		if rerr == nil || derr == nil {
			return p + " can be read", true
		}
	}
	return "none", false
}

func devices(*Config) (string, bool) {
	var opened []string
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return short(err), false
	}
	for _, e := range entries {
		switch e.Name() {
		case "null", "zero", "full", "random", "urandom", "tty", "ptmx", "stdin", "stdout", "stderr",
			"console", "core", "fd", "shm", "pts", "mqueue":
			continue // every container has them
		}
		if f, err := os.OpenFile("/dev/"+e.Name(), os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			opened = append(opened, e.Name())
			f.Close()
		}
	}
	return strings.Join(opened, " "), len(opened) > 0
}

// connect tries a socket. One that is not there proves nothing.
func connect(socket string) (string, bool) {
	c, err := dial("unix", socket)
	if err != nil {
		return short(err), errors.Is(err, fs.ErrNotExist)
	}
	return "connected", c.Close() == nil
}

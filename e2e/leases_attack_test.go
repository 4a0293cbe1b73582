//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// A command that means harm, in a lease, and what it leaves for the next one. Its attempts are in e2e/attack.
func TestLeaseAttack(t *testing.T) {
	t.Parallel()
	program := buildAttack(t)
	// The kernel counts watches for each user of the machine: a user of their own takes none from other tests.
	for trust, user := range map[pool.Access]string{pool.AccessNone: "4711:4711", pool.AccessNetwork: "4712:4712"} {
		t.Run(string(trust), func(t *testing.T) {
			t.Parallel()
			name := "a lease, " + string(trust)
			u := newCarefulUser(t)
			config, err := json.Marshal(map[string]any{
				"loopback": listening(t, "tcp", "127.0.0.1:0"), "abstract": listening(t, "unix", fmt.Sprintf("@sandbox-agent-e2e-%d-%s", os.Getpid(), trust)),
				"state": u.state, "other": filepath.Join(u.state, "owner.json"),
			})
			if err != nil {
				t.Fatal(err)
			}
			spec := []string{"--trust", string(trust), "--user", user, "--mount", u.harm(program, config) + ":/harm-of:ro"}
			p := u.servePool("--max", "1")
			attack := func(lease string, args ...string) []attackRow {
				t.Helper()
				c := u.run("", append([]string{"pool", "exec", lease, "--", "/harm-of/attack"}, args...)...)
				if c.code != 0 {
					t.Fatalf("%q: exit code %d: %s", args, c.code, c.stderr)
				}
				return rowsOf(t, c.stdout)
			}
			release := func(lease string) {
				t.Helper()
				if c := u.run("", "pool", "release", lease); c.code != 0 {
					t.Fatalf("exit code %d: %s", c.code, c.stderr)
				}
			}

			first := u.acquire(spec...)
			rows := attack(first.ID, "sandbox", "/harm-of/config.json")
			if len(rows) != sandboxAttempts {
				t.Errorf("%d rows", len(rows))
			}
			clean := attack(first.ID, "look")
			left := attack(first.ID, "leave")
			own := attack(first.ID, "look")
			release(first.ID)
			second := u.acquire(spec...)
			// Of the network of a trusted one traces stay, and it is thrown away.
			if again := second.Sandbox == first.Sandbox; again != (trust == pool.AccessNone) {
				t.Errorf("lent again: %t", again)
			}
			next := attack(second.ID, "look")
			release(second.ID)
			for i, r := range left {
				if r.Through != own[i].Through {
					t.Errorf("%s: left: %s; what left it sees: %s", r.Name, r.Got, own[i].Got)
				}
				if next[i].Got != clean[i].Got {
					t.Errorf("%s: before: %s; after: %s", r.Name, clean[i].Got, next[i].Got)
				}
			}
			checkRows(t, name, append(rows, next...))
			p.stopped(0)
		})
	}
}

// hostileLeases are commands that use up what a sandbox has, or go for what holds it.
var hostileLeases = []struct{ name, command string }{
	{"a fork bomb", "exec 2>/dev/null; trap '' TERM HUP; f() { f | f & f; }; f"},
	{"files without end", "for d in /workspace /tmp /dev/shm /var/tmp; do head -c 2G /dev/zero >$d/all; done 2>/dev/null; n=0; while : >/tmp/$n; do n=$((n+1)); done"},
	{"memory without end", "python3 -c 'b = []\nwhile True: b.append(b\"x\" * 2**20)'"},
	{"memory of others without end", "for i in 1 2 3 4; do setsid python3 -c 'b = []\nwhile True: b.append(b\"x\" * 2**20)' & done; sleep 2"},
	{"a signal to all", "while :; do kill -STOP -1; kill -STOP 1; kill -KILL -1; kill -KILL 1; done"},
	{"namespaces and mounts", "unshare -Urm true; unshare -m true; mount -t tmpfs x /workspace; mount -o remount,rw /sys; umount -l /proc; chroot / true; true"},
	{"processors", "for i in 1 2 3 4; do setsid sh -c 'while :; do :; done' & done; sleep 1"},
	{"a file system that is deep", "cd /workspace; n=0; while mkdir d && cd d && [ $n -lt 3000 ]; do n=$((n+1)); done; chmod 0 /workspace/d; true"},
}

// Folders that are full cost a lease nothing but the room in them.
func TestLeaseFull(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.servePool("--max", "1")
	l := u.acquire("--memory", "128m")
	if c := u.run("", "pool", "exec", l.ID, "--", "sh", "-c", "for d in /workspace /tmp /dev/shm; do head -c 1G /dev/zero >$d/all; done 2>/dev/null; head -c 9 /dev/zero | wc -c"); c.code != 0 || c.stdout != "9\n" {
		t.Errorf("exit code %d, %q: %s", c.code, c.stdout, c.stderr)
	}
	p.stopped(0)
}

// Whatever a lease does, its end is soon, and the next one finds a sandbox as clean as the first.
func TestLeaseHostile(t *testing.T) {
	t.Parallel()
	program := buildAttack(t)
	u := newCarefulUser(t)
	spec := []string{"--mount", u.harm(program, []byte("{}")) + ":/harm-of:ro", "--user", "4713:4713", "--memory", "128m", "--pids", "200"}
	p := u.servePool("--max", "1")
	look := func(lease string) []attackRow {
		t.Helper()
		c := u.run("", "pool", "exec", lease, "--", "/harm-of/attack", "look")
		if c.code != 0 {
			t.Fatalf("exit code %d: %s", c.code, c.stderr)
		}
		return rowsOf(t, c.stdout)
	}
	l := u.acquire(spec...)
	clean := look(l.ID)
	var rows []attackRow
	for _, h := range hostileLeases {
		u.run("", "pool", "exec", l.ID, "--timeout", "5s", "--", "sh", "-c", h.command)
		start := time.Now()
		if c := u.run("", "pool", "release", l.ID); c.code != 0 {
			t.Errorf("%s: exit code %d: %s", h.name, c.code, c.stderr)
		}
		const soon = 10 * time.Second
		took := time.Since(start)
		before := l.Sandbox
		l = u.acquire(spec...)
		row := attackRow{Group: "a lease that uses up its sandbox", Name: h.name, Expected: "refused", Got: "the next one is clean, in another sandbox", OK: true}
		if l.Sandbox == before {
			row.Got = "the next one is clean, in the same sandbox"
		}
		for i, r := range look(l.ID) {
			if r.Through || r.Got != clean[i].Got {
				row.Got, row.Through, row.OK = r.Name+": "+r.Got, true, false
			}
		}
		if took > soon {
			row.Got, row.OK = fmt.Sprintf("the end took %s", took), false
		}
		rows = append(rows, row)
	}
	u.run("", "pool", "release", l.ID)
	checkRows(t, "leases, one after the other", rows)
	p.stopped(0)
}

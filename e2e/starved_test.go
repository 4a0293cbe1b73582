//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// An agent that takes all that it can get takes it from itself: boot, git and the inner engine have their own, so that the time limit
// holds and the work lands.
func TestStarvedBoxLands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		head, script string
		code         int
		status       workorder.Status
		by           workorder.EndedBy
		reason       workorder.ReasonCode // none: how this one ends is another test's
		nightly      bool
	}{
		"fork bomb": {
			head: "limits: {memory: 3g, cpus: 1, pids: 2000}\ntimeout_minutes: 0.5\n", script: bomb,
			code: workorder.ExitTimeout, status: workorder.StatusTimeout, by: workorder.EndedByTimeout,
		},
		"memory bomb": {
			head: "limits: {memory: 1g, cpus: 1}\ntimeout_minutes: 3\n", script: "exec python3 -c 'b = bytearray(8 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1'",
			code: workorder.ExitTaskFailed, status: workorder.StatusFailed, by: workorder.EndedByAgent, reason: workorder.ReasonMemory,
		},
		"memory bomb in a container": {
			nightly: true, // it takes more than a minute to fill
			head:    "limits: {memory: 1g, cpus: 1}\ntimeout_minutes: 3\n",
			script:  "docker run --rm " + redisImage + " sh -c 'x=$(tail -c 4000000000 /dev/zero)'; exit 3",
			code:    workorder.ExitTaskFailed, status: workorder.StatusFailed, by: workorder.EndedByAgent,
		},
		"more of the disk than it may": {
			nightly: true,
			head:    "limits: {disk: 200m}\ntimeout_minutes: 3\n", script: "head -c 400000000 /dev/zero >/tmp/full; exec sleep 600",
			code: workorder.ExitTaskFailed, status: workorder.StatusFailed, by: workorder.EndedByAgent,
		},
		"full shared memory": {
			nightly: true,
			head:    "limits: {memory: 1g, cpus: 1}\ntimeout_minutes: 3\n", script: "cat /dev/zero >/dev/shm/full; cat /dev/zero >/dev/shm/full; exit 3",
			code: workorder.ExitTaskFailed, status: workorder.StatusFailed, by: workorder.EndedByAgent,
		},
	} {
		if c.nightly && !nightly {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			w := u.workOn(scripted(c.head, busy+c.script))
			r := w.end(c.code, c.status, c.by)
			landed(t, w.repo, r)
			if c.reason != "" && r.Reasons.Code() != c.reason {
				t.Errorf("reason %s (%s), want %s", r.Reasons, r.Reasons.Code(), c.reason)
			}
			for _, w := range r.Warnings {
				if strings.Contains(w, "less isolated") {
					t.Error(w)
				}
			}
		})
	}
}

// The settings of the machine's kernel, and what stands above the box's control groups: root in a box changes none by a write.
// Each is written its own value, or where it cannot be read a word that no kernel takes.
const knobs = `
for k in kernel/core_pattern kernel/modprobe kernel/sysrq kernel/panic kernel/panic_on_oops kernel/randomize_va_space kernel/pid_max kernel/threads-max \
	kernel/perf_event_paranoid kernel/kptr_restrict kernel/dmesg_restrict kernel/core_uses_pid kernel/printk vm/overcommit_memory vm/swappiness vm/panic_on_oom \
	vm/max_map_count fs/file-max fs/suid_dumpable fs/protected_symlinks fs/nr_open; do
	f=/proc/sys/$k
	[ -e $f ] || continue
	v=$(cat $f) && (printf %s "$v" >$f) 2>/dev/null && echo "written: $f"
	echo "tried: $f"
done
for f in /proc/sysrq-trigger /sys/kernel/uevent_helper /sys/power/state /sys/kernel/mm/transparent_hugepage/enabled /sys/module/*/parameters/* /proc/irq/default_smp_affinity; do
	[ -e $f ] || continue
	(: >>$f) 2>/dev/null && echo "opened for writing: $f"
done
find / -xdev -name release_agent 2>/dev/null
find /sys/fs/cgroup -name release_agent
for f in $(find /sys/fs/cgroup -name devices.allow); do
	(echo a >$f) 2>/dev/null && echo "all devices: $f"
done
dmesg >/dev/null 2>&1 && echo "the kernel's log is readable"
# perf_event_open and swapon, which root with SYS_ADMIN may call where no filter refuses them.
[ "$(uname -m)" != x86_64 ] || python3 -c 'import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for call in 298, 167:
    if libc.syscall(call, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 1: print("call", call, "ends with errno", ctypes.get_errno())'
cat /proc/1/mountinfo | awk '$4 ~ /docker|kubepods|\.\./ && $5 ~ /cgroup/ {print "above the box: " $5, $4}'
echo done
`

func TestRootInTheBoxWritesNoKnob(t *testing.T) {
	t.Parallel()
	w := work(t, "exec sleep 600")
	out := w.asRoot(knobs)
	if n := strings.Count(out, "tried: "); n < 15 || !strings.HasSuffix(out, "done\n") {
		t.Errorf("%d knobs were tried: %s", n, out)
	}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "tried: ") && line != "done\n" {
			t.Errorf("root in the box: %s", line)
		}
	}
	if c := w.u.run("", "stop", w.id); c.code != 0 {
		t.Errorf("stop: exit code %d, %s", c.code, c.stderr)
	}
	w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal)
}

// asRoot runs a script in the box as its root and returns what it printed.
func (w *working) asRoot(script string) string {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	x, err := eng.ContainerExecCreate(ctx, w.box(), container.ExecOptions{Cmd: []string{"sh", "-c", script}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		w.t.Fatal(err)
	}
	at, err := eng.ContainerExecAttach(ctx, x.ID, container.ExecAttachOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer at.Close()
	var out strings.Builder
	if _, err := stdcopy.StdCopy(&out, &out, at.Reader); err != nil {
		w.t.Fatal(err)
	}
	return out.String()
}

// A box that is killed in the moment of a commit leaves it to the host, which takes it out of the stopped box.
func TestKilledBoxLosesNoCommit(t *testing.T) {
	t.Parallel()
	w := work(t, "head -c 80000000 /dev/urandom >big && git add big && git commit -qm big && echo committed-now\n"+deaf)
	w.waitFor("committed-now")
	if err := eng.ContainerKill(t.Context(), w.box(), "KILL"); err != nil {
		t.Fatal(err)
	}
	r := w.end(workorder.ExitBox, workorder.StatusLost, workorder.EndedByHost)
	if got := gittest.Git(t, w.repo, "cat-file", "-s", r.Branch+":big"); got != "80000000" {
		t.Errorf("the last commit is not on %s: %s, %q", r.Branch, got, r.Warnings)
	}
	gittest.Git(t, w.repo, "fsck", "--strict", "--no-dangling")
}

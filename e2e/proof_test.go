//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The proof shows a mended test as such, and flags one that was made to pass in another way.
func TestProof(t *testing.T) {
	t.Parallel()
	const test = "import unittest, sum\nclass T(unittest.TestCase):\n    def test_sum(self):\n        self.assertEqual(sum.add(12000, 345), 12345)\n    def test_more(self):\n        self.assertEqual(sum.add(-1, 1), 0)\n"
	files := map[string]string{"check.sh": "python3 -m unittest -v\n", "sum.py": "def add(a, b):\n    return a - b\n", "test_sum.py": test}
	for name, c := range map[string]struct {
		script     string
		transition workorder.Transition
		flag       string
		nightly    bool // runner/proof has a test of each: one shows that it comes to the reader; TestTheWholeWay has no flags
	}{
		"mended":   {"printf 'def add(a, b):\\n    return a + b\\n' >sum.py", workorder.TransitionFixed, "", true},
		"deleted":  {"printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_true(self):\\n        self.assertTrue(True)\\n' >test_sum.py", workorder.TransitionFixed, workorder.FindingBaseTests, false},
		"skipped":  {"sed -i 's/^    def test/    @unittest.skip(\"later\")\\n    def test/' test_sum.py", workorder.TransitionFixed, workorder.FindingBaseTests, true},
		"weakened": {"sed -i 's/assertEqual(\\(.*\\), [0-9]*)/assertIsNotNone(\\1)/' test_sum.py", workorder.TransitionFixed, workorder.FindingBaseTests, true},
		"edited":   {"echo true >check.sh", workorder.TransitionFixed, workorder.FindingCheckEdited, true},
	} {
		if c.nightly && !nightly {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			c2 := u.run("", "create", "--task", "x", "--repo", u.repo(files), "-p", u.project(scripted("validate: {test: sh check.sh}\n", c.script)))
			r := u.plainResult(c2.task(t))
			if c2.code != 0 || r.Proof == nil || len(r.Proof.Checks) != 1 {
				t.Fatalf("exit code %d, %+v, %q", c2.code, r.Proof, r.Warnings)
			}
			check := r.Proof.Checks[0]
			if check.Transition != c.transition || check.Base == nil || check.Base.Passed || check.Head == nil || !check.Head.Passed {
				t.Errorf("%+v; %s", check, r.Proof.Reasons)
			}
			if tests := c.flag == workorder.FindingBaseTests; (check.BaseTests != nil) != tests || tests && (check.BaseTests.Passed || r.Proof.TestFindings[0].Kind != workorder.FindingTestEdited) {
				t.Errorf("base's tests on head's code: %+v, flags %+v", check.BaseTests, r.Proof.TestFindings)
			}
			if got := slices.ContainsFunc(r.Proof.TestFindings, func(f workorder.TestFinding) bool { return f.Kind == c.flag }); got != (c.flag != "") {
				t.Errorf("flags %+v", r.Proof.TestFindings)
			}
			b, err := os.ReadFile(filepath.Join(u.state, r.TaskID, workorder.ReportMarkdown))
			if err != nil || strings.Contains(string(b), "Look closely") != (c.flag != "") {
				t.Errorf("%v: the report says\n%s", err, b)
			}
		})
	}
}

// A check that was red before, and is no worse, leaves the task unproven: a test that is new does not make anything green that was red.
func TestRedBefore(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	files := map[string]string{"check.sh": "cat tests.tap; ! grep -q '^not ok' tests.tap\n", "tests.tap": "TAP version 13\n1..2\nok 1 - adds\nnot ok 2 - divides\n"}
	c := u.run("", "create", "--task", "x", "--repo", u.repo(files), "-p", u.project(scripted("validate: {test: sh check.sh}\n", "sed -i 's/1..2/1..3/' tests.tap && echo 'ok 3 - multiplies' >>tests.tap")))
	r := u.plainResult(c.task(t))
	if c.code != workorder.ExitUnproven || r.Status != workorder.StatusUnproven || r.Reasons.Code() != workorder.ReasonAsBefore {
		t.Fatalf("exit code %d, %s, %+v; %+v", c.code, r.Status, r.Reasons, r.Proof)
	}
	if counts := r.Proof.Checks[0].Counts; counts[workorder.TransitionStillFails] != 1 || counts[workorder.TransitionNewPasses] != 1 {
		t.Errorf("%v", counts)
	}
}

// marks looks for what an agent may have left for a check, anywhere but in the commit, and says what it found.
const marks = `
for f in /tmp /var/tmp /dev/shm /run/lock /home/sandbox /home/sandbox/.local/bin /workspace /workspace/.git "$PLAYWRIGHT_BROWSERS_PATH" "$(cat where)" /var/lib/sandbox-agent/media; do
	[ -n "$f" ] && [ -e "$f/mark" ] && echo "found: $f"
done
python3 - <<'X'
import ctypes, socket
libc = ctypes.CDLL(None)
if libc.shmget(4711, 64, 0) >= 0: print("found: shared memory")
if libc.msgget(4711, 0) >= 0: print("found: message queue")
for address in ("127.0.0.1", 4711), "\0mark":
    s = socket.socket(socket.AF_INET if address[0] != "\0" else socket.AF_UNIX)
    try: s.connect(address); print("found: server", repr(address))
    except OSError: pass
try: # the server closes first: for a minute the kernel would keep its port
    t = socket.socket(); t.bind(("127.0.0.1", 4722)); t.listen()
    c = socket.create_connection(("127.0.0.1", 4722)); a, _ = t.accept(); a.close(); c.recv(1); c.close(); t.close()
except OSError: print("broken: a server's port is taken")
s = socket.create_connection(("redis", 6379), 20); s.sendall(b"GET mark\r\n")
if s.recv(99).startswith(b"$1\r"): print("found: content of a service")
X
grep -rqs "mark-in-the-outpu[t]" /var/lib/sandbox-agent/out && echo "found: the agent's output"
git ls-remote origin | grep -q refs/heads/main || echo "broken: git ls-remote"
git ls-remote origin | grep -qE 'refs/(sandbox-agent|heads/agent)/' && echo "found: what attempts brought to the remote"
ls -d /var/lib/sandbox-agent/git/*/objects >/dev/null 2>&1 && echo "found: repositories with that"
[ -e seen ] || [ "$(git cat-file --batch-all-objects --batch-check='%(objecttype)' | grep -c commit)" -le 1 ] || echo "found: a commit that is not base"
docker run --rm IMAGE test -e /mark && echo "found: an image of a declared name"
docker run --rm -v /tmp:/t IMAGE test -e /t/mark && echo "found: bind of /tmp"
docker run --rm -v /home/sandbox:/t IMAGE test -e /t/mark && echo "found: bind of home"
docker image inspect mark >/dev/null 2>&1 && echo "found: an image"
docker volume inspect mark >/dev/null 2>&1 && echo "found: a volume"
docker network inspect mark >/dev/null 2>&1 && echo "found: a network"
printf 'FROM IMAGE\nRUN date +%%s%%N >/at\nRUN cat /at\n' >Dockerfile.mark
docker build -q -f Dockerfile.mark -t built . >/dev/null && docker run --rm built cat /at >at && [ "$(cat at)" = "$(cat built-at 2>/dev/null)" ] && echo "found: a build cache"
[ -s at ] || echo "broken: docker build"
docker run --rm -v "$PWD:/w" IMAGE test -e /w/check.sh || echo "broken: bind of the checkout"
echo looked
`

// The same as marks in the other direction.
const makeMarks = `
echo mark-in-the-output
mkdir -p ~/.local/bin
[ -n "$SANDBOX_AGENT_MEDIA" ] && echo "$SANDBOX_AGENT_MEDIA" >where
for f in /tmp /var/tmp /dev/shm /run/lock /home/sandbox /home/sandbox/.local/bin /workspace /workspace/.git "$PLAYWRIGHT_BROWSERS_PATH" "$(cat where)"; do touch "$f/mark"; done
cat >~/serve.py <<'X'
import ctypes, os, socket, time
libc = ctypes.CDLL(None)
libc.shmget(4711, 64, 0o1666); libc.msgget(4711, 0o1666)
a = socket.socket(); a.bind(("127.0.0.1", 4711)); a.listen()
b = socket.socket(socket.AF_UNIX); b.bind("\0mark"); b.listen()
s = socket.create_connection(("redis", 6379)); s.sendall(b"SET mark 1\r\n"); s.recv(9)
open("/tmp/serving", "w").close()
time.sleep(3600)
X
setsid -f python3 ~/serve.py >/dev/null 2>&1 </dev/null
docker volume create mark >/dev/null; docker network create mark >/dev/null
docker run --name forge IMAGE touch /mark && docker commit forge IMAGE >/dev/null && docker tag IMAGE mark
until [ -e /tmp/serving ]; do sleep 0.1; done
`

// A proof finds nothing that an agent left: it begins in places, and with an engine, that the agent never had.
func TestProofFindsNothingOfTheAgents(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	put := func(s string) string { return strings.ReplaceAll(s, "IMAGE", redisImage) }
	script := put(makeMarks) + `
sh check.sh >first 2>&1; cp at built-at; sh check.sh 2>/dev/null | grep -v looked | sort >seen; cat seen
rm -f first at Dockerfile.mark built-at mark; git checkout -q where
git add seen && git commit -qm 'Look'; sleep 1
`
	c := u.run("", "create", "--task", "x", "--repo", u.repo(map[string]string{"check.sh": put(marks), "where": ""}), "-p",
		u.project(scripted("services:\n  redis: {image: "+redisImage+"}\nvalidate: {test: 'sh check.sh'}\n", script)))
	r := u.plainResult(c.task(t))
	if r.Proof == nil || len(r.Proof.Checks) != 1 || r.Proof.Checks[0].Head == nil || r.Proof.Checks[0].Base == nil {
		t.Fatalf("%s: %+v, %q", r.Status, r.Proof, r.Warnings)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(u.state, r.TaskID, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	agent := read("logs/agent.stdout.log")
	if n := strings.Count(agent, "found: "); n < 18 {
		t.Errorf("the agent left only %d marks that work:\n%s", n, agent)
	}
	for _, mark := range []string{"found: what attempts brought to the remote", "found: repositories with that"} {
		if !strings.Contains(agent, mark) {
			t.Errorf("the agent did not see %q", mark)
		}
	}
	for _, side := range []*workorder.CheckRun{r.Proof.Checks[0].Head, r.Proof.Checks[0].Base} {
		if log := read(side.Log); strings.Contains(log, "found: ") || strings.Contains(log, "broken: ") || !strings.Contains(log, "looked") {
			t.Errorf("%s:\n%s", side.Log, log)
		}
	}
	for _, s := range r.Services {
		if s.State != "ready" {
			t.Errorf("service %s: %s", s.Name, s.State)
		}
	}
}

// An image's own places are the proof's, too: a volume is empty of what the agent wrote, and what the image had is there though the agent removed it.
func TestProofOnAnOwnImage(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	built := u.run("", "image", "build")
	if built.code != 0 {
		t.Fatalf("image build: exit code %d", built.code)
	}
	const name = "sandbox-agent-e2e-volume"
	if err := buildImage(t.Context(), name, "FROM "+lastLine(built.stdout)+"\nRUN mkdir -p /volume /opt/tool && echo image >/opt/tool/f && chown -R sandbox:sandbox /volume /opt/tool\nVOLUME /volume\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = eng.ImageRemove(context.WithoutCancel(t.Context()), name, image.RemoveOptions{Force: true})
	})
	const check = `
[ -e /volume/mark ] && echo "found: a volume"
[ "$(cat /opt/tool/f)" = image ] || echo "found: a tool that was changed"
[ -w /volume ] && [ -w /opt/tool ] || echo "broken: a place cannot be written to"
[ "$(df --output=used /dev/shm | tail -1)" -eq 0 ] || echo "broken: shared memory is taken"
head -c 50M /dev/zero >/dev/shm/hog
echo looked
`
	script := "touch /volume/mark; rm /opt/tool/f; head -c 50M /dev/zero >/dev/shm/hog; sh check.sh; touch seen; git add seen; git commit -qm Look"
	c := u.run("", "create", "--task", "x", "--image", name, "--repo", u.repo(map[string]string{"check.sh": check}), "-p", u.project(scripted("validate: {test: 'sh check.sh'}\n", script)))
	r := u.plainResult(c.task(t))
	if r.Proof == nil || len(r.Proof.Checks) != 1 || r.Proof.Checks[0].Head == nil || r.Proof.Checks[0].Base == nil {
		t.Fatalf("%s: %s, %+v, %q", r.Status, r.Reasons, r.Proof, r.Warnings)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(u.state, r.TaskID, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if n := strings.Count(read("logs/agent.stdout.log"), "found: "); n != 2 {
		t.Errorf("the agent left %d marks that work", n)
	}
	for _, side := range []*workorder.CheckRun{r.Proof.Checks[0].Head, r.Proof.Checks[0].Base} {
		if log := read(side.Log); strings.Contains(log, "found: ") || strings.Contains(log, "broken: ") || !strings.Contains(log, "looked") {
			t.Errorf("%s:\n%s", side.Log, log)
		}
	}
	if len(r.Proof.Reasons) != 0 {
		t.Errorf("reason: %s", r.Proof.Reasons)
	}
}

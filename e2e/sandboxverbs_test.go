//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// hello is a server that answers every connection with a word, in what every base image has.
const hello = `use IO::Socket::INET; my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => $ARGV[1], LocalPort => $ARGV[0], ReuseAddr => 1) or die "no: $!"; while (my $c = $s->accept) { print $c "hello\n"; close $c }`

// says is what a port of this machine answers; "" where nothing does.
func (u *user) says(at string) string {
	u.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(u.t.Context(), "tcp", at)
	if err != nil {
		return ""
	}
	defer conn.Close()
	line, _ := bufio.NewReader(conn).ReadString('\n') // an error is an empty line
	return strings.TrimSpace(line)
}

// jsonOf runs a command and decodes what it prints.
func jsonOf[T any](u *user, args ...string) (document T) {
	u.t.Helper()
	words := 1
	if args[0] == "snapshot" {
		words = 2
	}
	c := u.run("", slices.Concat(args[:words], []string{"--json"}, args[words:])...)
	if err := json.Unmarshal([]byte(c.stdout), &document); err != nil || c.code != 0 {
		u.t.Fatalf("%q: exit code %d, %v", args, c.code, err)
	}
	return document
}

type portRow struct {
	Port      int
	Local     string
	Addresses []string
}

// porterOf is the process id of a sandbox's porter; 0 where there is none.
func (u *user) porterOf(name string) int {
	u.t.Helper()
	var k struct{ Process struct{ PID int } }
	b, err := os.ReadFile(filepath.Join(u.state, "registry", name, "porter.json"))
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil && !os.IsNotExist(err) {
		u.t.Fatal(err)
	}
	return k.Process.PID
}

// Ports of a sandbox without a network are on this machine's loopback from the beginning, and for what listens later; they outlive whoever made them, and the death
// of who holds them.
func TestSandboxEndpoints(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := fmt.Sprintf("ends-%d", os.Getpid())
	up := jsonOf[struct{ Endpoints map[string]string }](u, "up", u.claim(name), "--image", plainImage, "--network", "none", "--port", "3000")
	first := up.Endpoints["3000"]
	if !strings.HasPrefix(first, "127.0.0.1:") || u.says(first) != "" {
		t.Errorf("%+v", up)
	}
	if c := u.run("", "exec", name, "--background", "--", "perl", "-e", hello, "3000", "127.0.0.1"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	for until := time.Now().Add(time.Minute); u.says(first) != "hello"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("no answer")
		}
	}
	// One that is waited for, whose server listens at another address than the loopback's alone.
	begun := jsonOf[struct {
		ID        string
		Endpoints map[string]string
	}](u, "exec", name, "--background", "--expose", "8000", "--", "perl", "-e", hello, "8000", "0.0.0.0")
	second := begun.Endpoints["8000"]

	if begun.ID == "" || u.says(second) != "hello" {
		t.Errorf("%+v: %q", begun, u.says(second))
	}
	c := u.run("", "exec", name, "--background", "--expose", "8001", "--", "sh", "-c", "echo no such luck; exit 3")
	if c.code != workorder.ExitGeneral || !strings.Contains(c.stderr, "no such luck") {
		t.Errorf("a server that ends: exit code %d", c.code)
	}
	third := jsonOf[[]portRow](u, "ports", name, "9000")[0].Local
	rows := jsonOf[[]portRow](u, "ports", name)
	if len(rows) != 3 || rows[0].Local != first || len(rows[0].Addresses) != 1 || rows[1].Local != second || rows[2].Local != third || len(rows[2].Addresses) != 0 {
		t.Errorf("%+v", rows)
	}
	// The porter dies.
	porter := u.porterOf(name)
	if err := syscall.Kill(porter, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); u.says(first) != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it is served by nobody")
		}
	}
	if c := u.run("", "exec", name, "--", "true"); c.code != 0 || u.says(first) != "hello" || u.says(second) != "hello" || u.porterOf(name) == porter {
		t.Errorf("after the porter's death: exit code %d, %q", c.code, u.says(first))
	}
	for _, row := range []struct {
		args []string
		want int
	}{
		{[]string{"0"}, workorder.ExitUsage},
		{[]string{"65536"}, workorder.ExitUsage},
		{[]string{"x"}, workorder.ExitUsage},
		{[]string{"0:80"}, workorder.ExitUsage},
		{[]string{"80", "81:80"}, workorder.ExitUsage},
		{[]string{strings.TrimPrefix(first, "127.0.0.1:") + ":80"}, workorder.ExitPort},
		{[]string{"1:3000"}, workorder.ExitPort},
		{[]string{"--remove", "77"}, workorder.ExitNotFound},
		{[]string{"--remove"}, workorder.ExitUsage},
	} {
		if c := u.run("", append([]string{"ports", name}, row.args...)...); c.code != row.want || strings.Count("\n"+c.stderr, "\nerror: ") != 1 {
			t.Errorf("%q: exit code %d, want %d", row.args, c.code, row.want)
		}
	}
	if c := u.run("", "up", u.claim(name+"-b"), "--image", plainImage, "--port", strings.TrimPrefix(first, "127.0.0.1:")+":80"); c.code != workorder.ExitPort || len(u.sandboxesOf(name+"-b")) != 0 {
		t.Errorf("up at a port that is taken: exit code %d", c.code)
	}
	// They stay over a stop, and do not start what is stopped.
	if c := u.run("", "stop", name); c.code != 0 || u.says(first) != "" {
		t.Errorf("stop: exit code %d, %q", c.code, u.says(first))
	}
	if state, err := eng.ContainerInspect(t.Context(), "sandbox-agent-sandbox-"+name); err != nil || state.State.Running {
		t.Errorf("a connection started it: %v", err)
	}
	if c := u.run("", "exec", name, "--background", "--expose", "3000", "--", "perl", "-e", hello, "3000", "127.0.0.1"); c.code != 0 || u.says(first) != "hello" {
		t.Errorf("after a stop: exit code %d", c.code)
	}
	if c := u.run("", "ports", name, "--remove", "9000"); c.code != 0 || len(jsonOf[[]portRow](u, "ports", name)) != 2 {
		t.Errorf("remove: exit code %d", c.code)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(first)
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil && u.says(net.JoinHostPort(ip.IP.String(), port)) != "" {
			t.Errorf("it listens at %s", ip)
		}
	}
	if c := u.run("", "down", name); c.code != 0 || u.says(first) != "" || u.porterOf(name) != 0 || len(u.processes()) != 0 {
		t.Errorf("down: exit code %d, %v", c.code, u.processes())
	}
}

// A sandbox that runs is put onto another network and back: at once, and over a stop and a reset.
func TestSandboxNetwork(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := u.sandbox("net")
	links := func() string {
		got, _ := u.exec(name, "", "--", "sh", "-c", "echo $(ls /sys/class/net | sed s/[0-9]//)") // the engine counts on
		return strings.TrimSpace(got.Stdout)
	}
	at := jsonOf[[]portRow](u, "ports", name, "3000")[0].Local
	if c := u.run("", "exec", name, "--background", "--expose", "3000", "--", "perl", "-e", hello, "3000", "127.0.0.1"); c.code != 0 || u.says(at) != "hello" {
		t.Fatalf("exit code %d", c.code)
	}
	if got := links(); got != "eth lo" {
		t.Errorf("network full: %q", got)
	}
	for _, to := range []string{"none", "full", "none"} {
		if c := u.run("", "network", name, to); c.code != 0 || u.says(at) != "hello" {
			t.Errorf("%s: exit code %d, endpoint says %q", to, c.code, u.says(at))
		}
		want := map[string]string{"none": "lo", "full": "eth lo"}[to]
		if got := links(); got != want {
			t.Errorf("network %s: %q", to, got)
		}
		if now := jsonOf[struct{ Network string }](u, "network", name); now.Network != to {
			t.Errorf("it tells %q, want %q", now.Network, to)
		}
	}
	u.halt(name)
	if got := links(); got != "lo" {
		t.Errorf("after a stop: %q", got)
	}
	if c := u.run("", "reset", name); c.code != 0 || links() != "lo" {
		t.Errorf("after a reset: %q", links())
	}
	// One that nothing is left of is made anew on the network that it had, by whoever uses it next.
	u.removeNow(name)
	c := u.run("", "exec", name, "--", "true")
	if c.code != 0 || !strings.Contains(c.stderr, "note:") || links() != "lo" {
		t.Errorf("after its removal by somebody: exit code %d, %q", c.code, links())
	}
	for to, want := range map[string]int{"restricted": workorder.ExitInvalid, "x": workorder.ExitUsage, "": 0} {
		if c := u.run("", "network", name, to); c.code != want {
			t.Errorf("%q: exit code %d", to, c.code)
		}
	}
	if c := u.run("", "network", "no-such", "none"); c.code != workorder.ExitNotFound {
		t.Errorf("no such sandbox: exit code %d", c.code)
	}
}

// A box has the same verbs: its guest holds the network, also to names, and keeps it over a stop; where it is gone it is made anew.
func TestSandboxBoxVerbs(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := fmt.Sprintf("boxverbs-%d", os.Getpid())
	first := jsonOf[struct{ Endpoints map[string]string }](u, "up", u.claim(name), "--runtime", "box", "--network", "none", "--port", "3000").Endpoints["3000"]
	serve := func() {
		t.Helper()
		if c := u.run("", "exec", name, "--background", "--expose", "3000", "--", "perl", "-e", hello, "3000", "127.0.0.1"); c.code != 0 || u.says(first) != "hello" {
			t.Errorf("exit code %d, %q", c.code, u.says(first))
		}
	}
	serve()
	type network struct {
		Network string
		Allow   []string
	}
	for _, to := range [][]string{{"full"}, {"none"}, {"restricted", "--allow", "example.com"}} {
		if c := u.run("", append([]string{"network", name}, to...)...); c.code != 0 || u.says(first) != "hello" {
			t.Errorf("%q: exit code %d, %q", to, c.code, u.says(first))
		}
		if now := jsonOf[network](u, "network", name); now.Network != to[0] || len(now.Allow) != len(to)/2 {
			t.Errorf("%q: %+v", to, now)
		}
	}
	if c := u.run("", "network", name, "none", "--allow", "example.com"); c.code != workorder.ExitUsage {
		t.Errorf("rules for none: exit code %d", c.code)
	}
	if c := u.run("", "snapshot", "create", name); c.code != workorder.ExitInvalid {
		t.Errorf("snapshot: exit code %d", c.code)
	}
	if c := u.run("", "stop", name); c.code != 0 || u.says(first) != "" {
		t.Errorf("stop: exit code %d", c.code)
	}
	serve()
	u.removeNow(name)
	c := u.run("", "exec", name, "--", "id", "-un")
	if now := jsonOf[network](u, "network", name); c.code != 0 || c.stdout != "sandbox\n" || !strings.Contains(c.stderr, "note: ") || now.Network != "restricted" || len(now.Allow) != 1 {
		t.Errorf("made anew: exit code %d, %+v", c.code, now)
	}
	serve()
	if c := u.run("", "down", name); c.code != 0 || len(u.sandboxesOf(name)) != 0 {
		t.Errorf("down: exit code %d", c.code)
	}
}

// removeNow removes a sandbox's container, as somebody else would.
func (u *user) removeNow(name string) {
	u.t.Helper()
	if err := eng.ContainerRemove(u.t.Context(), "sandbox-agent-sandbox-"+name, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
		u.t.Fatal(err)
	}
}

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// swap exchanges a directory for a link, again and again: renameat2 with RENAME_EXCHANGE.
const swap = `$n = shift() + 0; ($d, $l) = ("data", "ln"); chdir "/shared"; symlink shift, $l; $| = 1; print "begun\n"; while (1) { syscall $n, -100, $d, -100, $l, 2; select undef, undef, undef, 0.0004 }`

// renameat2 is the number of the system call, by machine.
var renameat2 = map[string]string{"x86_64": "316", "aarch64": "276"}

// A sandbox that can write to a directory puts a link in the place of one below it, while another starts that mounts that one: the other has its directory, or does not start.
func TestMountRace(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	shared, victim := filepath.Join(t.TempDir(), "shared"), t.TempDir()
	data := filepath.Join(shared, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{filepath.Join(data, "plain"): "plain", filepath.Join(victim, "key"): "secret"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	first, second := u.claim(fmt.Sprintf("race-a-%d", os.Getpid())), u.claim(fmt.Sprintf("race-b-%d", os.Getpid()))
	for name, mount := range map[string]string{first: shared + ":/shared", second: data + ":/m"} {
		if c := u.run("", "up", name, "--image", plainImage, "--user", "0:0", "--mount", mount, "--network", "none"); c.code != 0 {
			t.Fatalf("exit code %d: %s", c.code, c.stderr)
		}
	}
	machine := strings.TrimSpace(u.run("", "exec", first, "--", "uname", "-m").stdout)
	if renameat2[machine] == "" {
		t.Fatalf("no number of renameat2 for %s", machine)
	}
	s := u.start("", "exec", first, "--", "perl", "-e", swap, renameat2[machine], victim)
	s.waitFor("begun")
	through, started := false, 0
	for range 8 {
		_ = u.run("", "stop", second)
		c := u.run("", "exec", second, "--", "sh", "-c", "ls /m; [ ! -e /m/key ] || echo x >/m/written")
		if c.code == 0 {
			started++
		}
		through = through || strings.Contains(c.stdout, "key")
	}
	s.Signal(syscall.SIGKILL)
	s.wait()
	_, werr := os.Lstat(filepath.Join(victim, "written"))
	one, oerr := os.Readlink(filepath.Join(shared, "ln"))
	if other, err := os.Readlink(data); one != victim && other != victim { // control
		t.Errorf("nothing was swapped: %v, %v", oerr, err)
	}
	through = through || werr == nil
	checkRows(t, "container", []attackRow{{
		Group: "directories of this machine", Name: "a link in the place of a directory that another sandbox mounts", Expected: "refused", Got: fmt.Sprintf("8 starts, %d with its directory", started), Through: through, OK: !through,
	}})
}

//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// listing is what is below a folder: type, permissions, content or target of each name.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch info.Mode().Type() {
		case 0:
			b, rerr := os.ReadFile(p)
			what, err = what+" "+string(b), rerr
		case fs.ModeSymlink:
			what, err = os.Readlink(p)
		}
		all[strings.TrimPrefix(p, dir)] = what
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// cp copies and checks the exit code.
func (u *user) cp(want int, args ...string) call {
	u.t.Helper()
	c := u.run("", append([]string{"cp"}, args...)...)
	if c.code != want {
		u.t.Errorf("cp %q: exit code %d, want %d: %s", args, c.code, want, c.stderr)
	}
	return c
}

// What is copied in and out again is what it was, whatever it is called and however much it is; a sandbox that was stopped is there again.
func TestSandboxFiles(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := u.sandbox("files", "--network", "none", "--workdir", "/srv")
	local := func(parts ...string) string { return filepath.Join(append([]string{u.dir}, parts...)...) }
	write := func(name, content string, mode fs.FileMode) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(local(name)), 0o755), os.WriteFile(local(name), []byte(content), mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, odd := range []string{"a b", "new\nline", "é", "-x", "\xff", strings.Repeat("l", 255)} {
		write("src/odd/"+odd, odd, 0o640)
	}
	write("src/run", "#!/bin/sh\n", 0o755)
	write("src/none", "", 0o400)
	if err := errors.Join(os.Symlink("odd/a b", local("src/link")), os.Mkdir(local("src/empty"), 0o700)); err != nil {
		t.Fatal(err)
	}
	want := listing(t, local("src"))

	u.cp(0, "src", name+":") // the sandbox's folder is there: into it
	got, _ := u.exec(name, "", "--", "sh", "-c", "cd src && stat -c '%n %a %U' run none empty odd/é && readlink link && cat 'odd/new\nline'")
	if got.Stdout != "run 755 root\nnone 400 root\nempty 700 root\nodd/é 640 root\nodd/a b\nnew\nline" {
		t.Errorf("inside: %q", got.Stdout)
	}
	if c := u.run("", "stop", name); c.code != 0 {
		t.Errorf("stop: exit code %d", c.code)
	}
	var sum struct{ Files, Bytes, Left int }
	if c := u.cp(0, "--json", name+":src", "back"); json.Unmarshal([]byte(c.stdout), &sum) != nil || sum.Files != 9 || sum.Left != 0 {
		t.Errorf("%+v", sum)
	}
	for name, what := range listing(t, local("back")) {
		if want[name] != what {
			t.Errorf("%q came back as %q, was %q", name, what, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("%q did not come back", want)
	}
	// A name that looks like an option; one file over another, and over a link's.
	write("-x", "dash", 0o600)
	u.cp(0, "--", "-x", name+":/srv/-x")
	u.cp(0, name+":-x", "./src/link")
	if b, err := os.ReadFile(local("src/odd/a b")); string(b) != "dash" {
		t.Errorf("through a link: %q, %v", b, err)
	}

	large := make([]byte, 200_000_000)
	_, _ = rand.Read(large) // it never fails
	if err := os.WriteFile(local("large"), large, 0o644); err != nil {
		t.Fatal(err)
	}
	u.cp(0, "large", name+":/srv/large")
	u.cp(0, name+":large", "large.back")
	if b, err := os.ReadFile(local("large.back")); err != nil || !bytes.Equal(b, large) {
		t.Errorf("%d bytes came back of %d, %v", len(b), len(large), err)
	}
	// A disk that is full costs the copy, and nothing that was there.
	u.cp(0, "--", "-x", name+":/dev/shm/kept")
	u.cp(workorder.ExitGeneral, "large", name+":/dev/shm/kept")
	if got, _ := u.exec(name, "", "--", "sh", "-c", "ls -A /dev/shm; cat /dev/shm/kept"); got.Stdout != "kept\ndash" {
		t.Errorf("after a full disk: %q", got.Stdout)
	}
	for i := range 5000 {
		write(fmt.Sprintf("many/%d/%d", i%50, i), fmt.Sprint(i), 0o644)
	}
	u.cp(0, "many/.", name+":/srv/new")
	u.cp(0, name+":/srv/new/.", "many.back")
	if many, back := listing(t, local("many")), listing(t, local("many.back")); len(back) != 5051 || fmt.Sprint(many) != fmt.Sprint(back) {
		t.Errorf("%d files came back of %d", len(back), len(many))
	}

	out := u.cp(0, name+":src/run", "-")
	r := tar.NewReader(strings.NewReader(out.stdout))
	if h, err := r.Next(); err != nil || h.Name != "run" || h.Mode != 0o755 {
		t.Errorf("a tar: %+v, %v", h, err)
	}
	if c := u.run(out.stdout, "cp", "-", name+":/tmp"); c.code != 0 {
		t.Errorf("a tar back: exit code %d", c.code)
	}
	if got, _ := u.exec(name, "", "--", "cat", "/tmp/run"); got.Stdout != "#!/bin/sh\n" {
		t.Errorf("of a tar: %q", got.Stdout)
	}

	for _, row := range []struct {
		args []string
		want int
	}{
		{[]string{"none", name + ":"}, workorder.ExitNotFound},
		{[]string{name + ":none", "."}, workorder.ExitNotFound},
		{[]string{name + ":src", "no/such/folder"}, workorder.ExitNotFound},
		{[]string{"src", name + ":/no/such/folder"}, workorder.ExitNotFound},
		{[]string{"no-such-sandbox:x", "."}, workorder.ExitNotFound},
		{[]string{"src", name + ":large"}, workorder.ExitGeneral},
		{[]string{name + ":src", "large"}, workorder.ExitGeneral},
		{[]string{name + ":/dev/null", "."}, workorder.ExitGeneral},
		{[]string{"large", "src"}, workorder.ExitUsage},
		{[]string{name + ":a", name + ":b"}, workorder.ExitUsage},
		{[]string{":a", "."}, workorder.ExitUsage},
		{[]string{"", name + ":"}, workorder.ExitUsage},
		{[]string{"Not A Name:a", "."}, workorder.ExitUsage},
		{[]string{name + ":a"}, workorder.ExitUsage},
		{[]string{"--json", name + ":src", "-"}, workorder.ExitUsage},
	} {
		c := u.cp(row.want, row.args...)
		if strings.Count("\n"+c.stderr, "\nerror: ") != 1 && row.args[0] != "--json" {
			t.Errorf("%q: %s", row.args, c.stderr)
		}
	}
	if c := u.run("", "__complete", "cp", name[:5]); !strings.Contains(c.stdout, name+":") {
		t.Errorf("completion: %q", c.stdout)
	}
}

// What the sandbox's user may not read or write, cp does not, by whatever links and races.
func TestSandboxFilesOfOthers(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := u.sandbox("others", "--user", "1000:1000", "--network", "none", "--workdir", "/tmp")
	if err := os.WriteFile(filepath.Join(u.dir, "mine"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	u.cp(0, "mine", name+":own")
	if got, code := u.exec(name, "", "--", "sh", "-c", "ln -s /etc/shadow link && ln -s /.sandbox-agent guest && ln -s /proc/1/root root && mkdir closed && chmod 0 closed"); code != 0 {
		t.Fatalf("exit code %d: %s", code, got.Stderr)
	}
	secret := []string{"/etc/shadow", "link", "/.sandbox-agent/config.json", "guest/config.json", "/.sandbox-agent", "/proc/1/environ", "root/etc/shadow", "closed"}
	for _, s := range secret {
		u.cp(workorder.ExitGeneral, name+":"+s, "stolen")
		if b, err := os.ReadFile(filepath.Join(u.dir, "stolen")); err == nil {
			t.Errorf("%s was read: %.40q", s, b)
		}
		if err := os.RemoveAll(filepath.Join(u.dir, "stolen")); err != nil { // an empty folder of a closed one
			t.Fatal(err)
		}
	}
	for _, s := range append(secret[:5:5], "root/etc/shadow", "/etc/passwd", "/etc/new", "/root/new", "closed/x") {
		u.cp(workorder.ExitGeneral, "mine", name+":"+s)
	}

	// A name that is the user's file and the guest's in turn.
	u.exec(name, "", "--background", "--", "sh", "-c", "while :; do ln -sfn /.sandbox-agent/config.json race; ln -sfn /tmp/own race; ln -sfn /.sandbox-agent d; ln -sfn /tmp d; done")
	m, err := sandbox.NewManager(sandbox.Options{StateDir: u.state})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	sb, err := m.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	read := 0
	for range 200 {
		_ = sb.Files().Write(t.Context(), "d/config.json", strings.NewReader("evil"), sandbox.WriteOptions{})
		for _, p := range []string{"race", "d/config.json"} {
			r, err := sb.Files().Open(t.Context(), p)
			if err != nil {
				continue
			}
			b, err := io.ReadAll(r)
			if err == nil && string(b) != "mine" && string(b) != "evil" {
				t.Fatalf("%s was read: %.40q", p, b)
			}
			r.Close()
			read++
		}
	}
	if read == 0 {
		t.Error("nothing was ever read: there was no race")
	}
	archive, _, err := eng.CopyFromContainer(t.Context(), "sandbox-agent-sandbox-"+name, "/.sandbox-agent/config.json")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if b, err := io.ReadAll(archive); err != nil || bytes.Contains(b, []byte("evil")) || bytes.Contains(b, []byte("mine")) {
		t.Errorf("the guest's configuration was written: %q, %v", b, err)
	}
}

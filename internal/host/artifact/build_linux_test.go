package artifact

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func build(t *testing.T, definition string) (dir string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "d.yaml")
	put(t, file, definition, 0o644)
	d, err := ReadDefinition(file)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "a space", "it's")
	if err := (&Builder{State: t.TempDir()}).Build(t.Context(), d, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// built builds a jail, which needs bubblewrap.
func built(t *testing.T, definition string) (run func(code string, env ...string) (string, int)) {
	t.Helper()
	needJails(t)
	return runner(t, build(t, definition))
}

func needJails(t *testing.T) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "bwrap", "--ro-bind", "/", "/", "true").Run(); err != nil {
		t.Skipf("no jail can be made here: %v", err)
	}
}

// runner runs code in an artifact, by a link.
func runner(t *testing.T, dir string) (run func(code string, env ...string) (string, int)) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "run")
	if err := os.Symlink(filepath.Join(dir, "bin", "run"), link); err != nil {
		t.Fatal(err)
	}
	return func(code string, env ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), link)
		cmd.Stdin, cmd.Dir, cmd.Env = strings.NewReader(code), "/", append([]string{"PATH=" + os.Getenv("PATH")}, env...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			return out.String(), e.ExitCode()
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), 0
	}
}

// An artifact works without sandbox-agent, from its folder or by a link, and has nothing of this machine but its programs.
func TestJail(t *testing.T) {
	t.Parallel()
	run := built(t, "{name: a, interpreter: python3 -c, timeout_seconds: 5, memory_mb: 64, inherit_vars: [GIVEN, NOT_SET]}")
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "x", 0o644)
	for name, row := range map[string]struct {
		code, want string
		exit       int
	}{
		"output":    {"print('hello')", "hello\n", 0},
		"exit code": {"exit(3)", "", 3},
		"long code": {"x = '" + strings.Repeat("x", 300<<10) + "'; print(len(x))", "307200\n", 0},
		"folders":   {"import os; print(os.getcwd(), os.listdir('.'), os.path.exists('/home'), os.path.exists('/root'), os.path.exists(" + fmt.Sprintf("%q", secret) + "))", "/workspace [] False False False\n", 0},
		"users":     {"print(len(open('/etc/passwd').readlines()))", "3\n", 0},
		"variables": {"import os; print(sorted(os.environ), os.environ['GIVEN'])", "['GIVEN', 'HOME', 'LANG', 'PATH', 'PWD', 'TMPDIR'] a 'b'\n", 0},
		"network":   {"import socket\ntry: socket.create_connection(('127.0.0.1', 22), 1)\nexcept OSError as e: print(len(socket.if_nameindex()))", "1\n", 0},
		"kernel":    {"import os\ntry: os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)\nexcept OSError: print('no')", "no\n", 0},
		"rights": {
			"import os\nfor l in open('/proc/self/status'):\n if l.split(':')[0] in ('CapEff', 'CapPrm', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp') and int(l.split()[1], 16) not in ({'N':[1],'S':[2]}.get(l[0], [0])): print(l)\nprint(os.getuid() != 0)",
			"True\n", 0,
		},
		"read-only": {"import os\nfor p in '/usr/x', '/etc/x', '/x', '/dev/x':\n try: open(p, 'w'); print(p)\n except OSError: pass", "", 0},
		"memory":    {"try: x = 'x' * 2**30\nexcept MemoryError: print('memory')", "memory\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, exit := run(row.code, "GIVEN=a 'b'", "OTHER=x"); got != row.want || exit != row.exit {
				t.Errorf("exit code %d, %q", exit, got)
			}
		})
	}
}

// A variable has the value that it was given, whatever the script calls its own.
func TestJailNames(t *testing.T) {
	t.Parallel()
	names := []string{"name", "image", "inherit", "here", "root", "spaces", "size", "d", "f", "v", "memory_mb", "options"}
	run := built(t, "{name: a, inherit_vars: ["+strings.Join(names, ", ")+"]}")
	var env []string
	for _, n := range names {
		env = append(env, n+"=of "+n)
	}
	if got, exit := run("for n in "+strings.Join(names, " ")+`; do [ "${!n}" = "of $n" ] || echo $n; done`, env...); got != "" || exit != 0 {
		t.Errorf("exit code %d, %q", exit, got)
	}
}

// Without its filter of system calls a jail runs nothing.
func TestJailFilter(t *testing.T) {
	t.Parallel()
	dir := build(t, "{name: a}")
	all, err := filepath.Glob(filepath.Join(dir, "filter-*"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := os.Remove(all[0]); err != nil {
		t.Fatal(err)
	}
	if _, exit := runner(t, dir)("true"); exit != 126 {
		t.Errorf("exit code %d", exit)
	}
}

// What is given to docker is what was meant, however a folder is called.
func TestContainer(t *testing.T) {
	t.Parallel()
	run := runner(t, build(t, `{name: a, backend: container, image: i, timeout_seconds: 1000000, inherit_vars: [A, image], project_mount: '/p,"q'}`))
	bin, project := t.TempDir(), filepath.Join(t.TempDir(), `x,source=/etc,"y`)
	put(t, filepath.Join(bin, "docker"), "#!/bin/sh\nprintf '%s\\n' \"$@\"\n", 0o755)
	put(t, filepath.Join(project, "f"), "", 0o644)
	got, exit := run("true", "PATH="+bin+":"+os.Getenv("PATH"), "SANDBOX_AGENT_PROJECT_DIR="+project)
	args := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	i := slices.Index(args, "--mount")
	if exit != 0 || i < 0 {
		t.Fatalf("exit code %d, %q", exit, args)
	}
	fields, err := csv.NewReader(strings.NewReader(args[i+1])).Read()
	if want := []string{"type=bind", "readonly", "source=" + project, `target=/p,"q`}; err != nil || !slices.Equal(fields, want) {
		t.Errorf("%q, %v", fields, err)
	}
	if i, want := slices.Index(args, "i"), []string{"i", "timeout", "-k", "2", "1000000", "bash", "-s"}; i < 0 || !slices.Equal(args[i:], want) {
		t.Errorf("%q", args)
	}
	if strings.Count(got, "--env\nA\n") != 1 || strings.Count(got, "--env\nimage\n") != 1 {
		t.Errorf("%q", args)
	}
}

// What is over with its time is over with all that it started.
func TestJailTimeout(t *testing.T) {
	t.Parallel()
	run := built(t, "{name: a, timeout_seconds: 0.5}")
	pipe := filepath.Join(t.TempDir(), "alive")
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	project := filepath.Dir(pipe)
	if err := os.Chmod(project, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, exit := run("exec 3<>/project/alive; setsid sleep 100 & sleep 100", "SANDBOX_AGENT_PROJECT_DIR="+project)
	if exit != 124 {
		t.Errorf("exit code %d", exit)
	}
}

// A jail whose own programs are gone has not this machine's in their place.
func TestJailGone(t *testing.T) {
	t.Parallel()
	needJails(t)
	dir := build(t, "{name: a}")
	run := runner(t, dir)
	if out, exit := run("pwd"); exit != 0 {
		t.Fatalf("exit code %d, %q", exit, out)
	}
	if err := os.Symlink(t.TempDir()+"/gone", filepath.Join(dir, rootLink)); err != nil {
		t.Fatal(err)
	}
	if out, exit := run("pwd"); exit != 126 {
		t.Errorf("exit code %d, %q", exit, out)
	}
}

// The project is there to be read, if it is asked for.
func TestJailProject(t *testing.T) {
	t.Parallel()
	run := built(t, "{name: a, project_mount: /src}")
	project := t.TempDir()
	put(t, filepath.Join(project, "f"), "content", 0o644)
	if got, exit := run("cat /src/f; echo x > /src/f || exit 7", "SANDBOX_AGENT_PROJECT_DIR="+project); exit != 7 || !strings.HasPrefix(got, "content") {
		t.Errorf("exit code %d, %q", exit, got)
	}
	if _, exit := run("true", "SANDBOX_AGENT_PROJECT_DIR="+filepath.Join(project, "f")); exit != 126 {
		t.Errorf("exit code %d", exit)
	}
	if got, exit := run("ls /src"); exit == 0 {
		t.Error(got)
	}
}

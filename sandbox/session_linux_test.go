package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

func session(t *testing.T, sb *Sandbox, d Driver) *Session {
	t.Helper()
	program := map[Driver]string{DriverPython: "python3", DriverNode: "node", DriverBash: "bash"}[d]
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("install %s: %v", program, err)
	}
	s, err := sb.OpenSession(t.Context(), SessionOptions{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func cell(t *testing.T, s *Session, c Cell) CellResult {
	t.Helper()
	r, err := s.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("%.60q: %v", c.Code, err)
	}
	return r
}

// want is what a cell is to end with.
type want struct {
	code                  string
	timeout               time.Duration
	stdout, value, failed string // failed is the error's name, or some with | between
	exit                  int
	stderr                int // bytes; -1 some
	ended, timedOut       bool
}

// What interpreters do that read and write their protocol where the cell does, one by one.
func TestSessions(t *testing.T) {
	t.Parallel()
	m := newFake(t).newManager(t.TempDir())
	sb := create(t, m, Spec{Name: "a"})
	for driver, cells := range map[Driver][]want{
		DriverPython: {
			{code: "x=1"},
			{code: "print(x+1)", stdout: "2\n"},
			{code: "x + 5", value: "6"},
			{code: "import os; os.system('echo hi'); print('after')", stdout: "hi\nafter\n"},
			{code: "import sys; sys.stderr.write('e'*1000000); None", stderr: 1000000},
			{code: "print('é'*10, end='')", stdout: strings.Repeat("é", 10)},
			{code: "input()", failed: "EOFError", exit: 1, stderr: -1},
			{code: "print(open(0).read()+'|eof')", stdout: "|eof\n"},
			{code: "x = 'unterminated", failed: "SyntaxError", exit: 1, stderr: -1},
			{
				code: "import time\nwhile True: time.sleep(60)", timeout: 300 * time.Millisecond, failed: "KeyboardInterrupt", timedOut: true,
				exit: 1, stderr: -1,
			},
			{code: "while True: pass", timeout: 300 * time.Millisecond, failed: "KeyboardInterrupt", timedOut: true, exit: 1, stderr: -1},
			{code: "print(x)", stdout: "1\n"},
			{code: "import asyncio\nawait asyncio.sleep(0.01)\nprint('awaited')", stdout: "awaited\n"},
			{code: "1/0", failed: "ZeroDivisionError", exit: 1, stderr: -1},
			{code: "import os\nif os.fork() == 0: print('child', flush=True)\nelse: os.wait()", stdout: "child\n"},
			{code: "os.write(4, b'rubbish\\n{\"id\":99,\"ok\":true}\\n'); print('on')", stdout: "on\n"},
			{
				code:   "def f(n): return n * 2\nimport multiprocessing as mp\nwith mp.get_context('fork').Pool(2) as p: print(p.map(f, [1, 2]))",
				stdout: "[2, 4]\n",
			},
			{code: "import subprocess; print(len([n for n in os.listdir('/proc/self/fd') if int(n) > 2 and subprocess.run(['test', '-e', " +
				"'/proc/self/fd/' + n]).returncode == 0 and n in '34']))", stdout: "0\n"},
			{code: "", stdout: ""},
			{code: strings.Repeat("# comment\n", 40000) + "print(7)", stdout: "7\n"},
			{code: "x = '\x00'", failed: "SyntaxError|ValueError", exit: 1, stderr: -1}, // Python before 3.11.4 has the second
			{code: "import sys; sys.exit(3)", exit: 3, ended: true},
		},
		DriverNode: {
			{code: "const x=1; let y=2"},
			{code: "console.log(x+y)", stdout: "3\n"},
			{code: "console.error('Uncaught x')", stderr: 11},
			{code: "setTimeout(()=>console.log(1),10)", stdout: "1\n", value: "*"},
			{code: "await new Promise(r=>setTimeout(()=>r(7),5))", value: "7"},
			{code: "throw new TypeError('boom')", failed: "TypeError", exit: 1, stderr: -1},
			{code: "require('child_process').execSync('echo sub',{stdio:'inherit'});0", stdout: "sub\n", value: "0"},
			{code: "'x'.repeat(", failed: "SyntaxError", exit: 1, stderr: -1},
			{code: "setTimeout(()=>{throw new RangeError('late')},5)", failed: "RangeError", exit: 1, stderr: -1},
			{code: "while(true){}", timeout: 300 * time.Millisecond, failed: "Interrupted", timedOut: true, exit: 1, stderr: -1},
			{
				code: "await new Promise(()=>setInterval(()=>{},1000))", timeout: 300 * time.Millisecond, failed: "Interrupted", timedOut: true,
				exit: 1, stderr: -1,
			},
			{code: "console.log(require('fs').readFileSync(0,'utf8')+'|eof')", stdout: "|eof\n"},
			{code: "x", value: "1"},
			// What a cell declares can be declared again, as something else too; a failed cell can be run again.
			{code: "const x = 2; x", value: "2"},
			{code: "let b = 1, n = 2, s = 3, d\nb + n + s", value: "6"},
			{code: "let e = 1\nlet f = await Promise.resolve(e + 1)\ne + f", value: "3"},
			{code: "const data = JSON.parse('{bad')", failed: "SyntaxError", exit: 1, stderr: -1},
			{code: "const data = JSON.parse('[7]'), [first] = data\nfirst", value: "7"},
			{code: "x = 3", failed: "TypeError", exit: 1, stderr: -1},
			{code: "class A { v() { return x } }\nfunction f() { return new A().v() }\nlet get = () => f()"},
			{code: "function x() {}\nclass A { v() { return 8 } }\nget()", value: "8"},
			{code: "function outer() { return inner() } function inner() { return 1 }\nvar sum = 0\n" +
				"for (const i of [1, 2]) { sum += await i }\nsum", value: "3"},
			{code: "function inner() { return 2 } outer()", value: "2"},
			{code: "const before = 1\nthrow new Error('middle')\nconst after = 2", failed: "Error", exit: 1, stderr: -1},
			{code: "const after = before\n;[after].length", value: "1"},
			{
				code:  "import p, { join as j } from 'node:path'; import * as os from 'os'; j('a', 'b') + typeof p.sep + typeof os.cpus",
				value: "'a/bstringfunction'",
			},
			{code: "import { nothing } from 'fs'", failed: "SyntaxError", exit: 1, stderr: -1},
			{code: "(await import('fs')).writeFileSync('x.json', '{\"k\":5}')"},
			{code: "import j from './x.json' with { type: 'json' }\nj.k", value: "5"},
			{code: "`${await 't'} import y from 'z'; const` // await const", value: "\"t import y from 'z'; const\""},
			{code: "function* g() { yield 1; yield 2 }\n[...g()]", value: "[ 1, 2 ]"},
			{code: "{ a: await 3 }", value: "{ a: 3 }"},
			{code: "let u; console.log(1)", stdout: "1\n"},
			{code: "u", value: "undefined"},
			{code: "const process2 = 1, navigator = 2, Symbol = 3; navigator", value: "2"},
			{code: "while (true) {} // await", timeout: 300 * time.Millisecond, failed: "Interrupted", timedOut: true, exit: 1, stderr: -1},
			{code: "process.exit(4)", exit: 4, ended: true},
		},
		DriverBash: {
			{code: "x=5; cd /tmp; declare -A m; m[a]=b; f() { echo f$1; }"},
			{code: "printf x$x; pwd", stdout: "x5/tmp\n"},
			{code: "printf ${m[a]}; f 1", stdout: "bf1\n"},
			{code: "echo hi; echo err >&2; false", stdout: "hi\n", exit: 1, stderr: 4},
			{code: "cat; echo eof", stdout: "eof\n"},
			{code: "read line; echo $?", stdout: "1\n"},
			{code: "echo 'unterminated", exit: -1, stderr: -1},
			{code: "head -c 1000000 /dev/zero | tr '\\0' e >&2", stderr: 1000000},
			{code: "sleep 60", timeout: 300 * time.Millisecond, timedOut: true, exit: 130},
			{code: "while :; do :; done", timeout: 300 * time.Millisecond, timedOut: true, exit: 130},
			{code: "echo still $x", stdout: "still 5\n"},
			{code: "(exit 7)", exit: 7},
			{code: "echo $?; set -u; set -x", stdout: "7\n"},
			{code: "! echo $?; set +x 2>/dev/null", stdout: "0\n", stderr: -1},
			{code: "set -x"},
			{code: "(exit 4)", exit: 4, stderr: -1},
			{code: "printf $?; set +x", stdout: "4", stderr: -1},
			{code: "set +u; trap 'echo failed' ERR; (exit 5) && :", exit: 5},
			{code: "echo $?; trap - ERR", stdout: "5\n"},
			{code: "exec 3>f 4>&1 2>&1; echo three >&3"},
			{code: "echo four >&4; cat f; (exec sh -c 'echo sub; exit 2')", stdout: "four\nthree\nsub\n", exit: 2},
			{code: "printf 'a\\nb\\n' >f; exec <f; read -r l; echo $l", stdout: "a\n"},
			{code: "read -r l; echo $l", stdout: "b\n"},
			{code: "end() { exec sh -c 'sleep 0.2; echo end; exit 3'; }; end", stdout: "end\n", exit: 3, ended: true},
		},
	} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			s := session(t, sb, driver)
			if !s.Created() {
				t.Error("it was there")
			}
			for _, w := range cells {
				r := cell(t, s, Cell{Code: w.code, Timeout: cmp.Or(w.timeout, 20*time.Second)})
				if w.exit == -1 && r.ExitCode > 0 {
					w.exit = r.ExitCode
				}
				check(t, w, r)
			}
			if _, err := s.Run(t.Context(), Cell{Code: "1"}); !errors.Is(err, ErrNotFound) {
				t.Errorf("after its end: %v", err)
			}
		})
	}
}

// A cell that cannot be interrupted costs the session, and nothing of it runs on.
func TestSessionKilled(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	for name, code := range map[string]string{
		"deaf": "import signal, time, subprocess\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" +
			"p = subprocess.Popen(['setsid', 'sleep', '987.25'])\nwhile True: time.sleep(1)",
		"killed": "import os, signal, subprocess\np = subprocess.Popen(['setsid', 'sleep', '987.25'])\nos.kill(os.getpid(), signal.SIGKILL)",
		"silent": "import os, time\nos.close(4)\ntime.sleep(900)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, sb, DriverPython)
			began := time.Now()
			r := cell(t, s, Cell{Code: code, Timeout: 500 * time.Millisecond})
			if !r.Ended || r.OK || r.TimedOut == (name == "killed") || time.Since(began) > 20*time.Second {
				t.Errorf("%+v after %s", r, time.Since(began))
			}
		})
	}
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "pgrep", "-f", "sleep 987.25").Output(); err == nil {
			t.Errorf("left: %s", out)
		}
	})
}

func TestSessionInterrupt(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	s := session(t, sb, DriverPython)
	cell(t, s, Cell{Code: "x = 3"})
	var r CellResult
	var wg sync.WaitGroup
	wg.Go(func() { r, _ = s.Run(t.Context(), Cell{Code: "import time; time.sleep(60)"}) })
	for {
		all, err := sb.Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 && all[0].Busy {
			break
		}
	}
	time.Sleep(50 * time.Millisecond) // of the driver
	if err := s.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if !r.Interrupted || r.Ended || r.OK {
		t.Errorf("%+v", r)
	}
	// A caller that goes away interrupts, too.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, Cell{Code: "time.sleep(60)"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if r := cell(t, s, Cell{Code: "print(x)"}); string(r.Stdout) != "3\n" {
		t.Errorf("%+v", r)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if all, err := sb.Sessions(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestSessionIDs(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	for _, id := range []string{"../x", "a/b", "-a", strings.Repeat("a", 65), "a b"} {
		if _, err := sb.OpenSession(t.Context(), SessionOptions{ID: id, Driver: DriverBash}); !errors.Is(err, ErrInvalidSpec) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := sb.OpenSession(t.Context(), SessionOptions{Driver: "cobol"}); !errors.Is(err, ErrInvalidSpec) {
		t.Error(err)
	}
	if _, err := sb.OpenSession(t.Context(), SessionOptions{Driver: DriverBash, Argv: []string{"no-such-program"}}); err == nil {
		t.Error("a program that is not there was started")
	}
	first, err := sb.OpenSession(t.Context(), SessionOptions{ID: "one", Driver: DriverBash})
	if err != nil {
		t.Fatal(err)
	}
	cell(t, first, Cell{Code: "x=1"})
	again, err := sb.OpenSession(t.Context(), SessionOptions{ID: "one", Driver: DriverBash})
	if err != nil || again.Created() || string(cell(t, again, Cell{Code: "printf $x"}).Stdout) != "1" {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := sb.OpenSession(t.Context(), SessionOptions{ID: "one", Driver: DriverPython}); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
}

// Many at once, each with what it alone remembers.
func TestSessionsAtOnce(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	const many = 64
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			s, err := sb.OpenSession(t.Context(), SessionOptions{ID: fmt.Sprint(i), Driver: DriverBash})
			if err != nil {
				t.Error(err)
				return
			}
			for _, c := range []string{fmt.Sprintf("x=%d", i), "printf $x"} {
				r, err := s.Run(t.Context(), Cell{Code: c})
				if err != nil || r.ExitCode != 0 || c == "printf $x" && string(r.Stdout) != fmt.Sprint(i) {
					t.Errorf("%d: %+v, %v", i, r, err)
				}
			}
		})
	}
	wg.Wait()
	if all, err := sb.Sessions(t.Context()); err != nil || len(all) != many {
		t.Errorf("%d, %v", len(all), err)
	}
}

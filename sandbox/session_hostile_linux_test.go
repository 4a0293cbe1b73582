package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a cell does to its own interpreter costs at most that: each ends, and says how.
func TestSessionHostile(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	for name, row := range map[string]struct {
		driver        Driver
		code          string
		timeout       time.Duration
		failed, ended bool
	}{
		"a value of ten megabytes": {driver: DriverPython, code: "'x' * 10_000_000"},
		"one in Node":              {driver: DriverNode, code: "'x'.repeat(10_000_000)"},
		"an error as long":         {driver: DriverPython, code: "raise type('E' * 10_000_000, (Exception,), {})('x')", failed: true},
		"no time at all":           {driver: DriverPython, code: "import time; time.sleep(60)", timeout: time.Millisecond, failed: true},
		"output without an end": {
			driver: DriverPython, code: "while True: print('x' * 1000)", timeout: 300 * time.Millisecond,
			failed: true,
		},
		"output of a child without one": {driver: DriverBash, code: "yes & :"},
		"break of no loop":              {driver: DriverBash, code: "break"},
		"break of all":                  {driver: DriverBash, code: "break 9"},
		"continue of no loop":           {driver: DriverBash, code: "continue"},
		"continue of all":               {driver: DriverBash, code: "while :; do continue 9; done"},
		"descriptors taken":             {driver: DriverBash, code: "exec 3</dev/null 4>/dev/null"},
		"names taken":                   {driver: DriverBash, code: "read() { :; }; printf() { :; }; eval() { :; }; trap() { :; }"},
		"errors that end it":            {driver: DriverBash, code: "set -e; false", failed: true, ended: true},
		"another program in its place":  {driver: DriverBash, code: "exec true", ended: true, failed: true},
		"a line of ends without an end": {
			driver: DriverPython,
			code:   "import os; os.system('head -c 10000000 /dev/zero >/proc/%d/fd/4; sleep 60' % os.getpid())", ended: true, failed: true,
		},
		"ends of others": {
			driver: DriverPython,
			code: `import os; os.system("for i in 1 2 3; do echo '{\"id\":999,\"ok\":true}' >/proc/%d/fd/4; echo 'no JSON' >/proc/%d/fd/4; ` +
				`done" % (os.getpid(), os.getpid()))`,
		},
		"standard output closed": {driver: DriverPython, code: "import sys, os; sys.stdout = None; os.close(1)"},
		"an error that cannot be shown": {
			driver: DriverPython, code: "class E(Exception):\n  def __str__(self): raise E()\nraise E()",
			failed: true,
		},
		"a value that cannot be shown": {driver: DriverPython, code: "class E:\n  def __repr__(self): raise ValueError()\nE()", failed: true},
		"handlers taken": {
			driver: DriverNode, code: "process.removeAllListeners('exit'); process.exit(5)", failed: true,
			ended: true,
		},
		"a rejection that nobody awaits": {
			driver: DriverNode,
			code:   "Promise.reject(new Error('x')); await new Promise(r => setTimeout(r, 50))", failed: true,
		},
		"a server": {driver: DriverNode, code: "require('http').createServer().listen(0, '127.0.0.1')"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, sb, row.driver)
			says := map[Driver][2]string{
				DriverPython: {"x = 41", "print(x)"}, DriverNode: {"var x = 41", "console.log(x)"},
				DriverBash: {"x=41", "echo $x"},
			}[row.driver]
			cell(t, s, Cell{Code: says[0]})
			began := time.Now()
			r := cell(t, s, Cell{Code: row.code, Timeout: cmp.Or(row.timeout, 10*time.Second)})
			took := time.Since(began)
			if r.OK == row.failed || r.Ended != row.ended || r.TimedOut != (row.timeout > 0) || took > 8*time.Second {
				t.Errorf("after %s: %.300q, %.300q, %+v", took, r.Stdout, r.Stderr, CellResult{
					OK: r.OK, Ended: r.Ended, Error: fmt.Sprintf("%.80s", r.Error), ExitStatus: r.ExitStatus,
				})
			}
			if row.ended || strings.Contains(name, "closed") {
				return
			}
			// what a child prints meanwhile may crowd it out
			if r := cell(t, s, Cell{Code: says[1], Timeout: 10 * time.Second}); !r.OK || !r.Truncated && !strings.Contains(string(r.Stdout),
				"41\n") {
				t.Errorf("then: %.100q, %.300q, %+v", r.Stdout, r.Stderr, CellResult{OK: r.OK, Ended: r.Ended, ExitStatus: r.ExitStatus})
			}
		})
	}
}

// A process beside the session that holds its descriptors does not hold its end.
func TestSessionHeld(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	s := session(t, sb, DriverPython)
	pid := strings.TrimSpace(string(cell(t, s, Cell{Code: "import os; print(os.getpid())"}).Stdout))
	if r, err := sb.Run(t.Context(), Command{Argv: []string{"sh", "-c", "exec 5>/proc/" + pid + "/fd/4 6>/proc/" + pid +
		"/fd/1; sleep 60 >/dev/null 2>&1 &"}}); err != nil || r.ExitCode != 0 {
		t.Fatal(r, err)
	}
	began := time.Now()
	r := cell(t, s, Cell{Code: "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on', flush=True)\n" +
		"time.sleep(60)", Timeout: 300 * time.Millisecond})
	if took := time.Since(began); !r.Ended || !r.TimedOut || string(r.Stdout) != "on\n" || took > 3500*time.Millisecond {
		t.Errorf("%+v after %s", r, took)
	}
}

// Sessions that have ended are no longer counted among those that there can be.
func TestSessionsThatEnded(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	for i := range 130 {
		s, err := sb.OpenSession(t.Context(), SessionOptions{ID: fmt.Sprint(i), Driver: DriverBash})
		if err != nil {
			t.Fatal(i, err)
		}
		if r := cell(t, s, Cell{Code: "exit 2"}); !r.Ended || r.ExitCode != 2 {
			t.Fatalf("%+v", r)
		}
	}
}

// A program in an interpreter's place that says what no driver says: opening it or its cells end, and say how.
func TestSessionHostileDriver(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	const ready = `echo '{"ready":true}' >&4; `
	for name, row := range map[string]struct {
		says      string
		opens     bool
		ok, ended bool
		exit      int
	}{
		"nothing":                 {says: "exec sleep 60"},
		"the end":                 {says: "echo out; echo err >&2; exit 3"},
		"an end before its ready": {says: `echo '{"id":1,"ok":true}' >&4; sleep 60`},
		"rubbish": {says: `echo rubbish >&4; echo '[]' >&4; echo '{"ready":"yes"}' >&4; ` + ready +
			`echo '{"id":"1"}' >&4; exec sleep 60`, opens: true, ended: true, exit: 137},
		"nothing after its ready": {says: ready + "trap '' INT; while :; do sleep 1; done", opens: true, ended: true, exit: 137},
		"codes that are none": {
			says: ready + `read -r -u 3 x; echo '{"id":1,"ok":false,"code":-5}' >&4; exec sleep 60`, opens: true,
			exit: 251,
		},
		"an exit that is none": {
			says: ready + `read -r -u 3 x; echo '{"id":1,"ok":true,"exit":1000}' >&4; exec sleep 60`, opens: true,
			ended: true, exit: 232,
		},
		"a display of nothing": {
			says: ready +
				`read -r -u 3 x; echo '{"id":1,"display":{"text/plain":null},"metadata":7}' >&4; echo '{"id":1,"ok":true}' >&4; exec sleep 60`,
			opens: true, ok: true,
		},
		"the same end again": {says: ready + `read -r -u 3 x; while echo '{"id":1,"ok":true}' >&4; do :; done`, opens: true, ok: true},
		"a depth of brackets": {says: ready +
			`read -r -u 3 x; printf '[%.0s' {1..100000} >&4; echo >&4; echo '{"id":1,"ok":true}' >&4; exec sleep 60`, opens: true, ok: true},
		"displays without an end": {says: ready +
			`read -r -u 3 x; trap '' INT; while echo '{"id":1,"display":{"text/plain":"x"}}' >&4; do :; done`, opens: true, ended: true, exit: 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if !row.opens {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			s, err := sb.OpenSession(ctx, SessionOptions{Driver: DriverBash, Argv: []string{"bash", "-c", row.says}})
			if (err == nil) != row.opens {
				t.Fatal(err)
			}
			if !row.opens {
				return
			}
			limit := 500 * time.Millisecond
			if row.ok { // what ends by itself has the time that it needs on a slow machine
				limit = 15 * time.Second
			}
			r, err := s.Run(ctx, Cell{Code: strings.Repeat("x", 1<<20), Timeout: limit, Display: func(Display) {}})
			if err != nil || r.OK != row.ok || r.Ended != row.ended || r.ExitCode != row.exit {
				t.Errorf("%+v, %v", r, err)
			}
			if err := s.Close(ctx); err != nil && !errors.Is(err, ErrNotFound) {
				t.Error(err)
			}
		})
	}
}

// What an interpreter says of an error has the lines of the cell, and no others.
func TestSessionLines(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	for driver, row := range map[Driver]struct{ code, has, no string }{
		DriverPython: {"def f():\n  1/0\n\nf()", "File \"<cell 2>\", line 4, in <module>\n    f()\n", "driver"},
		DriverBash:   {"x=1\n\nno-such-command", "line 3: ", "__sa"},
		DriverNode:   {"1;\n\nfunction f() { throw new Error('x'); }\nf()", "cell 2:4:1", "node:"},
	} {
		s := session(t, sb, driver)
		cell(t, s, Cell{Code: "1 == 1"})
		if r := cell(t, s, Cell{Code: row.code}); !strings.Contains(string(r.Stderr), row.has) || strings.Contains(string(r.Stderr), row.no) {
			t.Errorf("%s: %s", driver, r.Stderr)
		}
	}
}

// What a cell prints, and what is said of its error, is whole, and nothing of the driver is among it. The last cell of a row counts.
func TestSessionSays(t *testing.T) {
	t.Parallel()
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	for name, row := range map[string]struct {
		driver       Driver
		cells        []string
		stdout       string
		stderr, lack string // has this, and lacks that
		exit         int
		ended        bool
	}{
		"a trace": {
			driver: DriverBash, cells: []string{"set -x", "echo a; break", "echo b"}, stdout: "b\n",
			stderr: "+ echo b\n", lack: "builtin",
		},
		"a trace that was ended": {driver: DriverBash, cells: []string{"set -x", "set +x; continue", "echo b"}, stdout: "b\n", lack: "+"},
		"a long chain of errors": {
			driver: DriverPython,
			cells: []string{"last = None\nfor n in range(2000):\n  try: raise ValueError(n) from last\n  except ValueError as e: last = e\n" +
				"raise last"}, stderr: "ValueError: 1999\n", exit: 1,
		},
		"code that is no text": {driver: DriverPython, cells: []string{"'\xff'"}, stderr: "can't decode byte 0xff", exit: 1},
		"a cause": {
			driver: DriverNode, cells: []string{"throw new Error('e', {cause: new Error('why')})"},
			stderr: "[cause]: Error: why", lack: "node:", exit: 1,
		},
		"what an error has": {
			driver: DriverNode, cells: []string{"require('fs').readFileSync('/nope')"},
			stderr: "{\n  errno: -2,", exit: 1,
		},
		"words of the driver's own": {
			driver: DriverNode, cells: []string{"throw new Error('see [eval] and node:internal')"},
			stderr: "see [eval] and node:internal", exit: 1,
		},
		"an error not to be shown": {
			driver: DriverNode, cells: []string{"throw {[require('util').inspect.custom]() { throw 1 }}"},
			stderr: "cannot be shown", exit: 1,
		},
		"at the exit": {
			driver: DriverNode,
			cells: []string{"process.on('exit', () => { for (const end = Date.now() + 200; Date.now() < end;); console.log('bye') }); " +
				"process.exit(5)"}, stdout: "bye\n", exit: 5, ended: true,
		},
		"the cell's own process": {
			driver: DriverNode,
			cells: []string{
				"function process(x) { return x + 1 }\nlet Buffer = 2, setTimeout = 3, JSON = 4",
				"console.log(process(1) + Buffer)",
			}, stdout: "4\n",
		},
		"what begins a tick later": {
			driver: DriverNode,
			cells:  []string{"require('fs').createReadStream('/dev/null').on('end', () => console.log('end')).resume(); null"}, stdout: "end\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, sb, row.driver)
			var r CellResult
			for _, code := range row.cells {
				r = cell(t, s, Cell{Code: code, Timeout: 10 * time.Second})
			}
			stderr := string(r.Stderr)
			if string(r.Stdout) != row.stdout || !strings.Contains(stderr, row.stderr) || row.lack != "" && strings.Contains(stderr,
				row.lack) || r.ExitCode != row.exit || r.Ended != row.ended {
				t.Errorf("%.300q, %.500q, exit %d, ended %v", r.Stdout, stderr, r.ExitCode, r.Ended)
			}
		})
	}
}

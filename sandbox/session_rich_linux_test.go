package sandbox

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// pythonWith is a Python that has these modules.
func pythonWith(t *testing.T, modules ...string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
			return python
		}
	}
	t.Skipf("no Python here has %v: install python3-ipython, python3-ipykernel and python3-matplotlib", modules)
	return ""
}

// shown runs a cell and returns what it shows.
func shown(t *testing.T, s *Session, code string, timeout time.Duration) (CellResult, []Display) {
	t.Helper()
	var all []Display
	r := cell(t, s, Cell{Code: code, Timeout: timeout, Display: func(d Display) { all = append(all, d) }})
	return r, all
}

// textOf is a part of a display that is text.
func textOf(t *testing.T, d Display, kind string) string {
	t.Helper()
	var text string
	if err := json.Unmarshal(d.Data[kind], &text); err != nil {
		t.Errorf("%s of %v: %v", kind, d.Data, err)
	}
	return text
}

func TestSessionIPython(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "IPython", "matplotlib.pyplot", "matplotlib_inline")
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	s, err := sb.OpenSession(t.Context(), SessionOptions{Driver: DriverIPython, Argv: []string{python}, Env: []string{"TMPDIR=" + t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	const most = 60 * time.Second
	for _, row := range []want{
		{code: "x = 1"},
		{code: "x + 1", value: "2"},
		{code: "!echo from a shell; echo err >&2", stdout: "from a shell\n", stderr: 4},
		{code: "n = !echo $x\nprint(n)", stdout: "['1']\n"},
		{code: "%env SS_A=b"},
		{code: "!printf $SS_A", stdout: "b"},
		{code: "%%bash\nprintf y", stdout: "y"},
		{code: "%cd -q /tmp\nimport os; print(os.getcwd())", stdout: "/tmp\n"},
		{code: "input()", failed: "EOFError", exit: 1, stderr: -1},
		{code: "!cat", stdout: ""},
		{code: "x = 'unterminated", failed: "SyntaxError", exit: 1, stderr: -1},
		{code: "1/0", failed: "ZeroDivisionError", exit: 1, stderr: -1},
		{code: "import time; time.sleep(60)", timeout: 300 * time.Millisecond, failed: "KeyboardInterrupt", timedOut: true, exit: 1, stderr: -1},
		{code: "import sys; n = sys.stderr.write('e' * 1000000)", stderr: 1000000},
		{code: "import asyncio\nawait asyncio.sleep(0.01)\nprint(x)", stdout: "1\n"},
	} {
		r, _ := shown(t, s, row.code, cmp.Or(row.timeout, most))
		if strings.HasPrefix(row.code, "%env") {
			continue // what it says differs between versions
		}
		check(t, row, r)
	}
	// What was printed before something is shown comes before it.
	const shows = 20
	var order strings.Builder
	cell(t, s, Cell{
		Code: fmt.Sprintf("from IPython.display import display\nfor i in range(%d):\n    print('printed', i, '.')\n    display(i)\n",
			shows), Timeout: most,
		Stdout: &order, Display: func(d Display) { fmt.Fprintf(&order, "shown %s .\n", textOf(t, d, "text/plain")) },
	})
	for i := range shows {
		printed, shown := strings.Index(order.String(), fmt.Sprintf("printed %d .", i)), strings.Index(order.String(),
			fmt.Sprintf("shown %d .", i))
		if printed < 0 || shown < printed {
			t.Errorf("%d: %q", i, order.String())
		}
	}
	r, all := shown(t, s, "from IPython.display import display, HTML\ndisplay(HTML('<b>'))\nprint('between')\nHTML('<i>')", most)
	if !r.OK || len(all) != 2 || textOf(t, all[0], "text/html") != "<b>" || all[0].Result || textOf(t, all[1], "text/html") != "<i>" ||
		!all[1].Result || string(r.Stdout) != "between\n" {
		t.Errorf("%+v, %+v", r, all)
	}
	r, all = shown(t, s, "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()", most)
	if !r.OK || len(all) != 1 {
		t.Fatalf("%+v, %d", r, len(all))
	}
	if png, err := base64.StdEncoding.DecodeString(textOf(t, all[0], "image/png")); err != nil || !strings.HasPrefix(string(png), "\x89PNG") {
		t.Errorf("%.20q, %v", png, err)
	}
	// A plot that nobody asks to show is shown at the cell's end, as in a notebook.
	if r, all = shown(t, s, "_ = plt.plot([1, 2, 3])", most); !r.OK || len(all) != 1 || all[0].Data["image/png"] == nil {
		t.Errorf("%+v, %d", r, len(all))
	}
	// One that is too large is told of, and costs nothing else.
	if r, all = shown(t, s, "class B:\n  def _repr_html_(self): return 'x' * 9_000_000\nB()", most); !r.OK || len(all) != 1 ||
		all[0].Data["text/html"] != nil || all[0].Data["text/plain"] == nil {
		t.Errorf("%+v, %d", r, len(all))
	}
	check(t, want{code: "exit", exit: 0, ended: true}, cell(t, s, Cell{Code: "exit", Timeout: most}))
}

// check compares a cell's end with what it is to be.
func check(t *testing.T, w want, r CellResult) {
	t.Helper()
	ok := w.exit == 0 && !w.timedOut && !w.ended
	if string(r.Stdout) != w.stdout || w.value != "*" && r.Value != w.value || r.ExitCode != w.exit || r.OK != ok ||
		r.Ended != w.ended || r.TimedOut != w.timedOut || w.failed != "" && !slices.Contains(strings.Split(w.failed, "|"), r.Error) ||
		w.stderr >= 0 && len(r.Stderr) != w.stderr || w.stderr < 0 && len(r.Stderr) == 0 {
		t.Errorf("%.60q after %s: %.80q, %d bytes of errors %.300q, %+v", w.code, r.Duration, r.Stdout, len(r.Stderr), r.Stderr,
			CellResult{Value: r.Value, OK: r.OK, Error: r.Error, Ended: r.Ended, ExitStatus: r.ExitStatus})
	}
}

func TestSessionJupyter(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "jupyter_client", "ipykernel")
	sb := create(t, newFake(t).newManager(t.TempDir()), Spec{Name: "a"})
	env := []string{"TMPDIR=" + t.TempDir()} // what a driver that is killed leaves is the test's
	if _, err := sb.OpenSession(t.Context(), SessionOptions{
		Driver: DriverJupyter, Kernel: "no-such", Argv: []string{python},
		Env: env,
	}); err == nil || !strings.Contains(err.Error(), "No such kernel") {
		t.Errorf("a kernel that is not there: %v", err)
	}
	s, err := sb.OpenSession(t.Context(), SessionOptions{Driver: DriverJupyter, Argv: []string{python}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	const most = 60 * time.Second
	for _, row := range []want{
		{code: "x = 1"},
		{code: "x + 1", value: "2"},
		{code: "print('é')", stdout: "é\n"},
		{code: "!echo sub", stdout: "sub\r\n"}, // it gives it a terminal
		{code: "input()", failed: "StdinNotImplementedError", exit: 1, stderr: -1},
		{code: "1/0", failed: "ZeroDivisionError", exit: 1, stderr: -1},
		{code: "import time; time.sleep(60)", timeout: time.Second, failed: "KeyboardInterrupt", timedOut: true, exit: 1, stderr: -1},
		{code: "print(x)", stdout: "1\n"},
	} {
		r, _ := shown(t, s, row.code, cmp.Or(row.timeout, most))
		check(t, row, r)
	}
	if r, all := shown(t, s, "from IPython.display import HTML\nHTML('<i>')", most); !r.OK || len(all) != 1 || textOf(t, all[0],
		"text/html") != "<i>" || !all[0].Result {
		t.Errorf("%+v, %+v", r, all)
	}
	// What the bridge and the kernel say to each other has paths. ipykernel has a port of its own for what its forks print.
	if r := cell(t, s, Cell{Code: "import json, ipykernel.connect\n" +
		"print(json.loads(ipykernel.connect.get_connection_info())['transport'])", Timeout: most}); string(r.Stdout) != "ipc\n" {
		t.Errorf("%s, %s", r.Stdout, r.Stderr)
	}
	if r := cell(t, s, Cell{Code: "x?", Timeout: most}); !strings.Contains(string(r.Stdout), "int") {
		t.Errorf("help: %q, %+v", r.Stdout, r)
	}
	if r := cell(t, s, Cell{Code: "import os; os._exit(3)", Timeout: most}); !r.Ended || r.OK {
		t.Errorf("%+v", r)
	}
	if s, err = sb.OpenSession(t.Context(), SessionOptions{Driver: DriverJupyter, Argv: []string{python}, Env: env}); err != nil {
		t.Fatal(err)
	}
	if r := cell(t, s, Cell{Code: "exit", Timeout: most}); !r.Ended || r.OK || r.ExitCode != 0 {
		t.Errorf("exit: %+v", r)
	}
}

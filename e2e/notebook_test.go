//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// systemPython is the one whose packages a jail has, too.
const systemPython = "/usr/bin/python3"

// notebookOf writes a notebook with code cells.
func (u *user) notebookOf(name, kernel string, cells ...string) string {
	u.t.Helper()
	type doc = map[string]any
	all := []doc{{"cell_type": "markdown", "id": "title", "metadata": doc{}, "source": "# <b>Title</b>"}}
	for i, c := range cells {
		all = append(all, doc{"cell_type": "code", "id": fmt.Sprint(i), "metadata": doc{}, "source": strings.SplitAfter(c, "\n"), "outputs": []any{}, "execution_count": nil})
	}
	b, err := json.Marshal(doc{"nbformat": 4, "nbformat_minor": 5, "metadata": doc{"kernelspec": doc{"name": kernel, "language": kernel, "display_name": kernel}, "ours": 1}, "cells": all})
	if err != nil {
		u.t.Fatal(err)
	}
	path := filepath.Join(u.dir, name)
	if err := os.WriteFile(path, b, 0o640); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// filledNotebook is what a test looks at of one.
type filledNotebook struct {
	Metadata struct{ Ours int }
	Cells    []struct {
		Count   *int `json:"execution_count"`
		Outputs []struct {
			Type string `json:"output_type"`
			Name string
			Text []string
			Data map[string]any
			// Error is the name of an error.
			Error string `json:"ename"`
		}
	}
}

// readNotebook reads a notebook that nbformat has found good.
func readNotebook(t *testing.T, path string) (n filledNotebook) {
	t.Helper()
	const check = "import nbformat, sys; nbformat.validate(nbformat.read(sys.argv[1], as_version=nbformat.NO_CONVERT))"
	if out, err := exec.CommandContext(t.Context(), systemPython, "-c", check, path).CombinedOutput(); err != nil {
		t.Errorf("nbformat: %v: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func needPython(t *testing.T, modules ...string) {
	t.Helper()
	if err := exec.CommandContext(context.WithoutCancel(t.Context()), systemPython, "-c", "import "+strings.Join(modules, ", ")).Run(); err != nil {
		t.Fatalf("%s has not all of %v: apt-get install python3-ipython python3-ipykernel python3-matplotlib python3-nbformat", systemPython, modules)
	}
}

// A notebook of Jupyter's runs in a jail of this machine's programs, with magics and pictures, and Jupyter's own check finds it good.
func TestNotebook(t *testing.T) {
	t.Parallel()
	needPython(t, "IPython", "matplotlib", "nbformat")
	u := rootsJail.user(t)
	path := u.notebookOf("a.ipynb", "python", "x = 41\nprint('é')\n", "!hostname; id -u", "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);", "x + 1", "  ")
	if c := u.run("", "notebook", "run", path, "--out", path+".out"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	n := readNotebook(t, path+".out")
	if n.Metadata.Ours != 1 || len(n.Cells) != 6 || n.Cells[5].Count != nil {
		t.Fatalf("%+v", n)
	}
	if o := n.Cells[1].Outputs; len(o) != 1 || o[0].Name != "stdout" || !slices.Equal(o[0].Text, []string{"é\n"}) {
		t.Errorf("%+v", o)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if o := n.Cells[2].Outputs; len(o) != 1 || len(o[0].Text) != 2 || o[0].Text[0] == host+"\n" {
		t.Errorf("%+v", o)
	}
	if o := n.Cells[3].Outputs; len(o) != 1 || o[0].Type != "display_data" {
		t.Errorf("%+v", o)
	} else if png, err := base64.StdEncoding.DecodeString(strings.TrimSpace(fmt.Sprint(o[0].Data["image/png"]))); err != nil || !strings.HasPrefix(string(png), "\x89PNG\r\n") {
		t.Errorf("%.20q, %v", png, err)
	}
	if o := n.Cells[4].Outputs; len(o) != 1 || o[0].Type != "execute_result" || *n.Cells[4].Count != 4 {
		t.Errorf("%+v", o)
	}
	// In its own place, with the rights that the file has.
	if c := u.run("", "notebook", "run", path); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 || len(readNotebook(t, path).Cells[1].Outputs) != 1 {
		t.Errorf("%v, %v", st, err)
	}
}

// What fails stops the others, and is written.
func TestNotebookFails(t *testing.T) {
	t.Parallel()
	needPython(t, "nbformat")
	u := rootsJail.user(t)
	path := u.notebookOf("a.ipynb", "python", "print(1)", "1/0", "print(2)")
	c := u.run("", "notebook", "run", path, "--json")
	var doc struct {
		Ran     int
		Failed  []int
		Error   string
		Stopped bool
	}
	if err := json.Unmarshal([]byte(c.stdout), &doc); err != nil || c.code != 1 || doc.Ran != 2 || !slices.Equal(doc.Failed, []int{3}) || doc.Error != "ZeroDivisionError" || !doc.Stopped {
		t.Errorf("exit code %d, %+v, %v", c.code, doc, err)
	}
	n := readNotebook(t, path)
	if o := n.Cells[2].Outputs; len(n.Cells[1].Outputs) != 1 || len(o) == 0 || o[len(o)-1].Error != "ZeroDivisionError" || n.Cells[3].Count != nil {
		t.Errorf("%+v", n)
	}
	if c := u.run("", "notebook", "run", path, "--allow-errors"); c.code != 0 || len(readNotebook(t, path).Cells[3].Outputs) != 1 {
		t.Errorf("exit code %d", c.code)
	}
	slow := u.notebookOf("slow.ipynb", "python", "import time; time.sleep(60)")
	if c := u.run("", "notebook", "run", slow, "--timeout", "500ms"); c.code != 124 {
		t.Errorf("exit code %d", c.code)
	}
	if c := u.run("", "notebook", "run", u.notebookOf("other.ipynb", "no-such", "1")); c.code != 6 {
		t.Errorf("a kernel that is not there: exit code %d", c.code)
	}
	for name, text := range map[string]string{"none": "hello", "old": `{"nbformat":3,"worksheets":[]}`} {
		bad := filepath.Join(u.dir, name)
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c := u.run("", "notebook", "run", bad); c.code != 6 {
			t.Errorf("%s: exit code %d", name, c.code)
		}
		if b, err := os.ReadFile(bad); err != nil || string(b) != text {
			t.Errorf("%s was changed: %s, %v", name, b, err)
		}
	}
	for _, args := range [][]string{{}, {path, path}, {path, "--session", "s"}, {path, "--timeout", "-1s"}, {path, "--json", "--out", "-"}, {path + ".not"}} {
		if c := u.run("", append([]string{"notebook", "run"}, args...)...); c.code != 64 {
			t.Errorf("%v: exit code %d", args, c.code)
		}
	}
}

// A session of a sandbox remembers from notebook to notebook; what is not in Python runs in a kernel of Jupyter.
func TestNotebookSession(t *testing.T) {
	t.Parallel()
	needPython(t, "IPython", "ipykernel", "nbformat")
	u := rootsJail.user(t)
	if c := u.run("", "up", "nb", "--runtime", "jail", "--network", "none"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	defer u.run("", "down", "nb")
	one, two := u.notebookOf("one.ipynb", "python", "kept = 6"), u.notebookOf("two.ipynb", "python", "print(kept)")
	if c := u.run("", "notebook", "run", one, "--sandbox", "nb", "--session", "s"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	if c := u.run("", "notebook", "run", two, "--sandbox", "nb", "--session", "s"); c.code != 0 || !slices.Equal(readNotebook(t, two).Cells[1].Outputs[0].Text, []string{"6\n"}) {
		t.Errorf("exit code %d", c.code)
	}
	if c := u.run("", "notebook", "run", two, "--sandbox", "nb"); c.code != 1 {
		t.Errorf("without the session: exit code %d", c.code)
	}
	// Of another language than Python it is a kernel that runs: the one that is here says that it is another.
	kernel := u.notebookOf("kernel.ipynb", "python", "print(type(get_ipython()).__module__.split('.')[0])", "%%bash\necho $((6*7))")
	b, err := os.ReadFile(kernel)
	if err != nil {
		t.Fatal(err)
	}
	b = []byte(strings.Replace(strings.Replace(string(b), `"language":"python"`, `"language":"other"`, 1), `"name":"python"`, `"name":"python3"`, 1))
	if err := os.WriteFile(kernel, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := u.run("", "notebook", "run", kernel, "--sandbox", "nb"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	n := readNotebook(t, kernel)
	if !slices.Equal(n.Cells[1].Outputs[0].Text, []string{"ipykernel\n"}) || !slices.Equal(n.Cells[2].Outputs[0].Text, []string{"42\n"}) {
		t.Errorf("%+v", n)
	}
}

package proof_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The pages of both sides are looked at in the checkouts where setup has run, after the checks, and joined; what the server left is stopped
// before the other side's turn.
func TestVisit(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"page": "old"})
	head := b.commit(map[string]string{"page": "new"})
	b.asOther()
	b.Order.Setup = []string{"cp page built"}
	b.validate("dev", "touch checked")
	var order []string
	left := ""
	b.Visit = func(_ context.Context, s proof.Site) ([]proof.View, error) {
		built, err := os.ReadFile(filepath.Join(s.Dir, "built"))
		if err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(s.Dir, "checked")); err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") && !strings.HasSuffix(kv, b.Home) }) {
			t.Errorf("%q", s.Env)
		}
		if left != "" {
			if _, err := os.Stat("/proc/" + left); err == nil && alive(t, left) {
				t.Errorf("process %s of base still runs", left)
			}
		}
		// A session of its own, as a server that detaches itself has.
		o := b.Shell(t.Context(), proof.CommandLine{Name: "dev", Run: "setsid sh -c 'echo $$ >pid; exec sleep 600' >/dev/null 2>&1 & while ! [ -s pid ]; do sleep 0.02; done", Dir: s.Dir, Env: s.Env, Log: s.Log})
		if o.Err != nil {
			t.Error(o.Err)
		}
		pid, err := os.ReadFile(filepath.Join(s.Dir, "pid"))
		if err != nil {
			t.Error(err)
		}
		left = strings.TrimSpace(string(pid))
		order = append(order, s.Side+"="+strings.TrimSpace(string(built))+" "+s.Log)
		view := proof.View{Path: "/" + string(built), Width: 1280, Seen: workorder.PageView{Status: http.StatusOK}}
		same := proof.View{Path: "/", Width: 390, Seen: workorder.PageView{Title: s.Side}}
		if s.Side == "base" {
			return []proof.View{same, view}, errors.New("no video")
		}
		return []proof.View{view, same}, nil
	}
	p := b.prove(t.Context(), head)
	if d := cmp.Diff([]string{"base=old logs/proof-base-dev.log", "head=new logs/proof-head-dev.log"}, order); d != "" {
		t.Error(d)
	}
	if alive(t, left) {
		t.Errorf("process %s of base still runs", left)
	}
	var got []string
	for _, v := range p.Pages {
		got = append(got, fmt.Sprintf("%s %d %v %v", v.Path, v.Width, v.Base != nil, v.Head != nil))
	}
	if d := cmp.Diff([]string{"/new 1280 false true", "/ 390 true true", "/old 1280 true false"}, got); d != "" {
		t.Error(d)
	}
	if v := p.Pages[1]; v.Base.Title != "base" || v.Head.Title != "head" {
		t.Errorf("%+v", v)
	}
	if p.Reasons.Code() != workorder.ReasonPages || len(p.Reasons) != 1 || len(p.Checks) != 1 {
		t.Errorf("%q, %+v", p.Reasons, p.Checks)
	}
	// The check that is called as the server's log has another one.
	if log := p.Checks[0].Head.Log; log != "logs/proof-head-dev-2.log" {
		t.Error(log)
	}
}

// alive reports whether a process runs that is no zombie.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[0] != "Z"
}

// Without checks the pages are looked at all the same; a side whose setup fails has none.
func TestVisitWithoutChecks(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1"})
	head := b.commit(map[string]string{"a": "2"})
	b.Order.Setup = []string{"grep 2 a"}
	n := 0
	b.Visit = func(context.Context, proof.Site) ([]proof.View, error) {
		n++
		return []proof.View{{Path: "/", Width: 390}}, nil
	}
	p := b.prove(t.Context(), head)
	if n != 1 || len(p.Pages) != 1 || p.Pages[0].Base != nil || p.Pages[0].Head == nil || p.Reasons.Code() == "" {
		t.Errorf("%d, %+v, %q", n, p.Pages, p.Reasons)
	}
}

// A server that cannot be viewed is not "0 views": the reason is reported.
func TestVisitOfDeadServer(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1"})
	head := b.commit(map[string]string{"a": "2"})
	var said []string
	emit := b.Emit
	b.Emit = func(e workorder.Event) {
		said = append(said, e.Text)
		emit(e)
	}
	b.Visit = func(context.Context, proof.Site) ([]proof.View, error) { return nil, errors.New("it exited with 1") }
	b.prove(t.Context(), head)
	if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "head: ") && strings.Contains(s, "it exited with 1") }) {
		t.Errorf("%q", said)
	}
	if slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "head: 0 ") }) {
		t.Errorf("%q", said)
	}
}

package doctor_test

import (
	"context"
	"os"
	"path/filepath"
	stdruntime "runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
)

// denied is an engine whose socket this user may not open.
type denied struct{ *runtimetest.Fake }

func (denied) Info(context.Context) (runtime.Info, error) {
	return runtime.Info{}, &runtime.DeniedError{Socket: "/run/engine.sock", Group: "engine-users"}
}

// TestOrdinaryUser: who may neither use the engine nor write the state folder is told both, with the group that may, and the rest is looked at.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	d := &doctor.Doctor{Engine: denied{runtimetest.NewFake(nil)}, StateDir: filepath.Join(dir, "state")}
	said := map[string]doctor.Check{}
	asNobody(t, func() {
		for _, c := range d.Run(t.Context()) {
			said[c.Name] = c
		}
	})
	for name, want := range map[string]doctor.Status{"engine": doctor.Fail, "state directory": doctor.Fail, "git": doctor.OK} {
		if said[name].Status != want || want == doctor.Fail && said[name].Hint == "" {
			t.Errorf("%s: %+v", name, said[name])
		}
	}
	if !strings.Contains(said["engine"].Hint, "engine-users") {
		t.Errorf("%+v", said["engine"])
	}
}

// asNobody calls f on a thread that is no longer root's, and ends it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() != 0 {
			f()
			return
		}
		stdruntime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		const nobody = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			t.Error(errno)
			return
		}
		f()
	}()
	<-done
}

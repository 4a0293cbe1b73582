package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

func TestSpec(t *testing.T) {
	t.Parallel()
	got, err := Spec{Name: "a", Image: "i"}.complete()
	want := Limits{MemoryBytes: DefaultMemoryBytes, CPUs: DefaultCPUs, PIDs: DefaultPIDs}
	if err != nil || got.Limits != want || got.Network != NetworkFull || got.Lifetime != LifetimeNamed || got.OwnerTimeout != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = Spec{Image: "i", Lifetime: LifetimeEphemeral, Limits: Limits{NoLimit, NoLimit, NoLimit}}.complete()
	if err != nil || got.Name == "" || got.OwnerTimeout != DefaultOwnerTimeout || got.Limits.effective().PIDs != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	// Every mistake is told, all at once.
	_, err = Spec{
		Name: "A b", Runtime: RuntimeContainer, Network: "some", Lifetime: "x", Dir: "tmp", Env: []string{"A"}, IdleTimeout: -1,
		Limits: Limits{MemoryBytes: 512, CPUs: math.NaN(), PIDs: 1},
	}.complete()
	if !errors.Is(err, ErrInvalidSpec) || strings.Count(err.Error(), "\n") != 9 {
		t.Errorf("%v", err)
	}
	for _, n := range []float64{0.001, 1e300, math.Inf(1)} {
		if _, err := (Spec{Image: "i", Limits: Limits{CPUs: n}}).complete(); !errors.Is(err, ErrInvalidSpec) {
			t.Errorf("%g CPUs: %v", n, err)
		}
	}
	for _, name := range []string{"", "-a", "_a", "Ab", "a b", "a/b", "é", strings.Repeat("a", 64), "T-A1B2C3D4"} {
		if _, err := (Spec{Name: name, Image: "i"}).complete(); !errors.Is(err, ErrInvalidSpec) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1000} {
		if got := timeout(d); got != want {
			t.Errorf("%s: %d, want %d", d, got, want)
		}
	}
}

func TestPublicErrors(t *testing.T) {
	t.Parallel()
	for from, to := range map[error]error{
		runtime.ErrNotFound: ErrNotFound, runtime.ErrConflict: ErrExists, runtime.ErrUnavailable: ErrUnavailable,
		runtime.ErrIsolation: ErrUnsupported, wireclient.ErrConnectionLost: ErrConnectionLost,
		&wire.Error{Code: wire.CodeNotFound}: ErrNotFound, &wire.Error{Code: wire.CodeRefused}: ErrConnectionRefused,
		&wire.Error{Code: wire.CodeBadRequest}: ErrInvalidSpec,
		&wire.Error{Code: wire.CodeDenied}:     ErrPermission, &wire.Error{Code: wire.CodeExists}: ErrExists,
		&wire.Error{Code: wire.CodeFileType}: ErrFileType, &wire.Error{Code: wire.CodeExhausted}: ErrLimitReached,
		wireclient.ErrTooManyEntries: ErrTooLarge, runtime.ErrExited: ErrConnectionLost,
	} {
		if err := public(fmt.Errorf("do it: %w", from)); !errors.Is(err, to) || !errors.Is(err, from) {
			t.Errorf("%v is %v, want %v", from, err, to)
		}
	}
	if public(nil) != nil {
		t.Error("nil is an error")
	}
}

// What commands write to a directory of this machine belongs to its user; root's to the owner of the directory.
func TestWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := fmt.Sprintf("%d:%d", os.Getuid(), cmp.Or(os.Getgid(), os.Getuid()))
	if os.Getuid() == 0 {
		if want = "1777:1777"; os.Chown(dir, 1777, 0) != nil {
			t.Skip("the owner of a directory cannot be changed")
		}
	}
	write, read := Spec{Mounts: []Mount{{Source: dir, ReadOnly: true}, {Source: dir}}}, Spec{Mounts: []Mount{{Source: dir, ReadOnly: true}}}
	for got, want := range map[string]string{
		write.writer(0, 0): want, write.writer(5, 6): "5:6", "-" + read.writer(0, 0): "-", "--" + read.writer(5, 6): "--",
		"---" + (Spec{Worktree: "/r"}).writer(5, 6): "---5:6",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

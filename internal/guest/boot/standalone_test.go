package boot

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type fakeStander struct {
	again  bool
	served int
	serve  func(ctx context.Context) (over, err error)
}

func (s *fakeStander) Restarted() bool { return s.again }
func (s *fakeStander) Serve(ctx context.Context) (over, err error) {
	s.served++
	return s.serve(ctx)
}

func standingOrder() *workorder.Order {
	o := order()
	o.Mode, o.Standalone, o.Validate, o.Task, o.TimeoutMinutes = workorder.ModeStandalone, &workorder.Standalone{}, nil, "", 0
	o.Packages, o.Env = []string{"jq"}, map[string]string{}
	return o
}

// A box without a task is made ready as for one, serves, and lands nothing.
func TestStand(t *testing.T) {
	t.Parallel()
	idle := errors.New("it was not used")
	var commands []string
	f := &fake{shell: func(c string) (int, string, error) { commands = append(commands, c); return 0, "", nil }}
	s := &fakeStander{serve: func(context.Context) (error, error) { return idle, nil }}
	r := playWith(t, f, standingOrder(), nil, func(b *Runner) { b.Standalone, b.Packages = s, fakePackages{f} })
	if r.code != workorder.ExitOK || r.result.Status != workorder.StatusSuccess || s.served != 1 || len(commands) != 2 {
		t.Errorf("code %d, served %d times, %q, %+v", r.code, s.served, commands, r.result)
	}
	for _, did := range []string{"clone", "up", "packages"} {
		if !f.called(did) {
			t.Errorf("%s was not called", did)
		}
	}
	for _, never := range []string{"save", "land", "release", "commit", "validate"} {
		if f.called(never) {
			t.Errorf("%s was called", never)
		}
	}
	if st := r.steps(); st[workorder.StepServe] != workorder.StepDone || st[workorder.StepSetup] != workorder.StepDone {
		t.Errorf("%v", st)
	}
}

// Started again, it does not do twice what stays over a stop.
func TestStandAgain(t *testing.T) {
	t.Parallel()
	f := &fake{shell: func(c string) (int, string, error) { t.Errorf("%s was run", c); return 0, "", nil }}
	s := &fakeStander{again: true, serve: func(context.Context) (error, error) { return nil, nil }}
	r := playWith(t, f, standingOrder(), nil, func(b *Runner) { b.Standalone, b.Packages = s, fakePackages{f} })
	if r.code != workorder.ExitOK || s.served != 1 || !f.called("up") || f.called("packages") {
		t.Errorf("code %d, %q", r.code, f.calls)
	}
	if st := r.steps(); st[workorder.StepSetup] != workorder.StepSkipped || st[workorder.StepPackages] != workorder.StepSkipped {
		t.Errorf("%v", st)
	}
}

func TestStandEnds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		shell  func(string) (int, string, error)
		serve  error
		signal bool
		code   int
		by     workorder.EndedBy
	}{
		"setup that fails": {
			shell: func(string) (int, string, error) { return 3, "no", nil },
			code:  workorder.ExitCode(workorder.StatusFailed, workorder.EndedBySetup), by: workorder.EndedBySetup,
		},
		"a server that dies": {
			serve: errors.New("no socket"), code: workorder.ExitCode(workorder.StatusError, workorder.EndedByBox),
			by: workorder.EndedByBox,
		},
		"a stop": {signal: true, code: workorder.ExitOK, by: workorder.EndedByAgent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{shell: row.shell}
			signals := make(chan os.Signal, 1)
			s := &fakeStander{serve: func(ctx context.Context) (error, error) {
				if row.signal {
					signals <- syscall.SIGTERM
					<-ctx.Done()
				}
				return nil, row.serve
			}}
			r := playWith(t, f, standingOrder(), signals, func(b *Runner) { b.Standalone, b.Packages = s, fakePackages{f} })
			if r.code != row.code || r.result.EndedBy != row.by {
				t.Errorf("code %d, ended by %s, want %d, %s", r.code, r.result.EndedBy, row.code, row.by)
			}
		})
	}
}

type fakePackages struct{ f *fake }

func (p fakePackages) Install(context.Context, []string) error { p.f.did("packages"); return nil }

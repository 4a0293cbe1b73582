package roles

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// What is in force is what is kept for the next start, also where one of the two cannot be changed.
func TestPolicy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var inForce workorder.NetworkPolicy
	var refused error
	p := &policyControl{
		order: workorder.NetworkPolicy{Mode: workorder.NetworkFull}, file: filepath.Join(dir, "network.json"), now: wire.NetworkPolicy{Mode: "full"},
		put: func(ctx context.Context, n workorder.NetworkPolicy) error {
			if err := errors.Join(ctx.Err(), refused); err != nil {
				return err
			}
			inForce = n
			return nil
		},
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the client is gone
	if err := p.Set(gone, wire.NetworkPolicy{Mode: "restricted", Allow: []string{"a.example"}}); err != nil {
		t.Fatal(err)
	}
	same := func(what, mode string) {
		t.Helper()
		b, err := os.ReadFile(p.file)
		if want := `{"mode":"` + mode + `","allow":["a.example"]}` + "\n"; err != nil || string(b) != want ||
			string(inForce.Mode) != mode ||
			p.Current().Mode != mode {
			t.Errorf("%s: %q is kept, %s in force, %s told, %v", what, b, inForce.Mode, p.Current().Mode, err)
		}
	}
	same("at first", "restricted")
	if err := p.Set(t.Context(), wire.NetworkPolicy{Mode: "some"}); !isBad(err) {
		t.Errorf("a mode that is none: %v", err)
	}
	refused = errors.New("the kernel refuses")
	if err := p.Set(t.Context(), wire.NetworkPolicy{Mode: "none"}); !errors.Is(err, refused) {
		t.Error(err)
	}
	same("after a refusal", "restricted")
	refused = nil
	file := p.file
	p.file = filepath.Join(dir, "no-folder", "network.json")
	if err := p.Set(t.Context(), wire.NetworkPolicy{Mode: "none"}); err == nil {
		t.Error("nothing can be kept, and that is no error")
	}
	p.file = file
	same("where nothing can be kept", "restricted")
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
}

func isBad(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	return ok && e.Code == wire.CodeBadRequest
}

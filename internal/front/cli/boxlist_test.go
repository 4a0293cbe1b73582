package cli

import (
	"os"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestOldLabel: a box of an older version, labelled with the machine's name, is not lost.
func TestOldLabel(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.hold = make(chan struct{})
	defer close(r.hold)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := taskstore.New(r.state).Create(&taskstore.Record{TaskID: tid, AttemptID: "a1", CreatedAt: time.Now(), Box: "box"})
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	labels := map[string]string{workorder.LabelTask: tid, workorder.LabelAttempt: "a1", workorder.LabelOwner: me.Username + "@" + host + ":" + r.state}
	r.fake = runtimetest.NewFake(map[string]runtimetest.Program{"x": func(*runtimetest.Box) int { <-r.hold; return 0 }})
	if _, err := r.fake.Run(t.Context(), runtime.ContainerSpec{Name: "box", Image: "x", Labels: labels}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	r.want(0, `"status": "running"`, "ps", "--json")
	r.without(0, "sandbox-agent-", "gc")
}

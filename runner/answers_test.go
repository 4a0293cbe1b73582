package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestAnswersInAnotherForm: the agent is notified while it can still correct them.
func TestAnswersInAnotherForm(t *testing.T) {
	t.Parallel()
	a, err := NewAnswers(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(a.dir)) })
	b := newBox(t, `echo 'Item two needs no change.' > `+a.File+`
until grep -q '2: ' "$SANDBOX_AGENT_NOTICE_FILE" 2>/dev/null; do sleep 0.05; done
echo '2: It needs no change.' > `+a.File)
	b.Answers = a
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	if n := b.of(workorder.EventNotice); len(n) != 1 || !strings.Contains(n[0].Text, "Item two needs") {
		t.Errorf("it received %+v", n)
	}
	if got, err := a.Read(); err != nil || got[2] != "It needs no change." {
		t.Errorf("%v, %v", got, err)
	}
}

package layercache

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	killRounds = 24
	killLayers = 16
	killDir    = "LAYERCACHE_KILL_DIR"
	killName   = "LAYERCACHE_KILL_NAME"
)

func killContent(name string) (layers []string) {
	for i := range killLayers {
		if i < killLayers/2 {
			name = "shared by all"
		}
		layers = append(layers, fmt.Sprint(name, " ", i))
	}
	return layers
}

// TestKilledPublisher is the process that TestKilled kills: a box that publishes
// an image and then prunes what the others published.
func TestKilledPublisher(t *testing.T) {
	t.Parallel()
	dir, name := os.Getenv(killDir), os.Getenv(killName)
	if dir == "" {
		return
	}
	b := newBox(t, dir, strings.ReplaceAll(name, ":", "-"))
	b.declares(name, killContent(name)...)
	fmt.Println("ready")
	if _, err := b.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	fmt.Println("published")
	prune(t, upkeep(dir), PruneOptions{})
	fmt.Println("pruned")
}

// Real processes are killed at random moments of publishing and pruning. After each,
// every image that is listed is whole, and a later box can use it.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	tmp := t.TempDir() // what the killed leave goes with this test
	rng := rand.New(rand.NewPCG(1, 2))
	var publish, all time.Duration // as seen from those that get so far, such as the first
	publishing, pruning := 0, 0
	for round := range killRounds {
		name := fmt.Sprintf("app:%d", round%3) // what was half removed is published again
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := proc.Start(t.Context(), proc.Spec{
			Argv: []string{os.Args[0], "-test.run=^TestKilledPublisher$", "-test.v"}, Stdout: w,
			Env: append(os.Environ(), killDir+"="+dir, killName+"="+name, "TMPDIR="+tmp),
		})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		var begin time.Time
		said := ""
		for lines := bufio.NewScanner(r); lines.Scan(); {
			said += lines.Text() + "\n"
			if lines.Text() == "ready" {
				begin = time.Now()
				window := publish
				if round%2 == 0 {
					window = all
				}
				if window > 0 {
					time.AfterFunc(time.Duration(rng.Int64N(int64(window*9/8))), func() { p.Signal(syscall.SIGKILL) })
				}
			}
			switch lines.Text() {
			case "published":
				publish = time.Since(begin)
			case "pruned":
				all = time.Since(begin)
			}
		}
		r.Close()
		switch err := p.Wait(); {
		case err == nil, strings.Contains(said, "pruned"): // in time
		case begin.IsZero() || proc.ExitCode(err) > 0 && proc.ExitCode(err) < 128:
			t.Fatalf("round %d: %v\n%s", round, err, said)
		case strings.Contains(said, "published"):
			pruning++
		default:
			publishing++
		}
		whole(t, dir, round)
	}
	if publishing+pruning == 0 {
		t.Error("no process was killed")
	}
	last := newBox(t, dir, "last")
	last.declares("last:1", "last")
	last.publish1(1)
	last.die()
	prune(t, upkeep(dir), PruneOptions{})
	tidy(t, dir)
	t.Logf("of %d, %d were killed while they published, %d while they pruned; publishing takes %s, all %s", killRounds, publishing, pruning, publish, all)
}

// whole checks what is listed by using it.
func whole(t *testing.T, dir string, round int) {
	t.Helper()
	var all []string
	for _, i := range listed(t, dir).Images {
		if i.Problem != "" {
			t.Fatalf("round %d: image %v: %s", round, i.Names, i.Problem)
		}
		all = append(all, i.Names...)
	}
	slices.Sort(all)
	b := newBox(t, dir, fmt.Sprint("check", round), all...)
	for _, n := range all {
		b.wantContent(n, killContent(n)...)
	}
	b.die()
}

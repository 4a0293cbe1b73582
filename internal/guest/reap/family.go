package reap

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// buryPause is the interval of checks for orphans that have ended: one check finds all of them.
const buryPause = 100 * time.Millisecond

// followPause is the interval of checks of abandoned processes: a process that they start must be seen before
// its parent ends, or it is taken for a stray.
const followPause = 5 * time.Second

// family holds the processes that this one has adopted: those that lost their parent and their supervisor.
// Processes that a command left at its own end stay; those whose supervisor was killed are killed.
type family struct {
	mu   sync.Mutex
	left map[Left]bool
}

// kin is this process's family, once it adopts.
var kin atomic.Pointer[family]

// Adopt makes this process, whose only children are those of package proc, the parent of orphans. It is
// called once, before Start.
func Adopt() error {
	if err := proc.Adopt(); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	f := &family{left: map[Left]bool{}}
	kin.Store(f)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		look := time.NewTicker(followPause)
		for {
			select {
			case <-ended:
				time.Sleep(buryPause)
				bury(proc.Relatives())
			case <-look.C:
				f.mu.Lock()
				if len(f.left) > 0 {
					f.follow(proc.Relatives())
				}
				f.mu.Unlock()
			}
		}
	}()
	return nil
}

func (f *family) leave(all []Left) {
	if f == nil || len(all) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range all {
		f.left[l] = true
	}
	f.follow(proc.Relatives())
}

// follow includes all descendants of abandoned processes, so that their parents may end, and forgets those
// that are gone.
func (f *family) follow(all []proc.Relative) {
	next := map[Left]bool{}
	var roots []int
	for _, r := range all {
		if f.left[Left{r.PID, r.Start}] {
			next[Left{r.PID, r.Start}] = true
			roots = append(roots, r.PID)
		}
	}
	for _, r := range proc.Below(all, roots...) {
		next[Left{r.PID, r.Start}] = true
	}
	f.left = next
}

const (
	// strayRounds bounds the rounds of a kill: even processes that fork as fast as they die are gone within a
	// few.
	strayRounds = 500
	// strayLooks is how many checks in a row must find no stray: one that starts during a check may be missed.
	strayLooks = 5
)

// killStrays kills processes without a supervisor.
func (f *family) killStrays() {
	if f == nil {
		return
	}
	for round, none := 0, 0; round < strayRounds && none < strayLooks; round++ {
		strays := f.strays()
		for _, r := range strays {
			_ = syscall.Kill(r.PID, syscall.SIGKILL)
		}
		none++
		if len(strays) > 0 {
			none = 0
		}
		time.Sleep(lookPause)
		bury(proc.Relatives())
	}
}

// strays returns the processes that this one has adopted, with their descendants, except abandoned ones.
func (f *family) strays() []proc.Relative {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := proc.Relatives()
	f.follow(all)
	children := proc.Children()
	watched := map[int]bool{}
	for _, pid := range children {
		watched[pid] = true
	}
	for _, r := range proc.Below(all, children...) {
		watched[r.PID] = true
	}
	var strays []proc.Relative
	for _, r := range proc.Below(all, os.Getpid()) {
		if !watched[r.PID] && !f.left[Left{r.PID, r.Start}] {
			strays = append(strays, r)
		}
	}
	return strays
}

// EndAll kills all descendants of this process, which adopts, including processes that commands have left.
func EndAll() { proc.EndChildren(func() { bury(proc.Relatives()) }) }

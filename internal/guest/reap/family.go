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

// buryPause is between two looks for orphans that have ended: one look finds all that have ended meanwhile.
const buryPause = 100 * time.Millisecond

// followPause is between two looks at what was left behind: what it starts must have been seen before it ends, or is taken for a stray then.
const followPause = 5 * time.Second

// family is what this process has adopted: what loses its parent and its supervisor. What a command has left behind at its own end stays, and what is
// nobody's, because its supervisor was killed, is killed.
type family struct {
	mu   sync.Mutex
	left map[Left]bool
}

// kin is this process's family, once it adopts.
var kin atomic.Pointer[family]

// Adopt makes this process, which has no children but those of package proc, the parent of what loses its own. It is called once, before Start.
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

// follow makes what was left behind all that descends from it, so that its parents may end, and forgets those that are gone.
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
	// strayRounds bounds the rounds of a kill: what forks as fast as it dies loses within a few.
	strayRounds = 500
	// strayLooks without a stray in a row are its end: one that begins while it is looked may be missed.
	strayLooks = 5
)

// killStrays kills what is nobody's.
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

// strays are the processes that this one has adopted, with what descends from them, but for what was left behind.
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

// EndAll kills all that descends from this process, which adopts, also what commands have left behind.
func EndAll() { proc.EndChildren(func() { bury(proc.Relatives()) }) }

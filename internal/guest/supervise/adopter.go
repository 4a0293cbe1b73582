package supervise

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

// followPause is the interval of checks of abandoned processes, whose children must be seen before their parent ends.
const followPause = 5 * time.Second

// adopter holds adopted processes. Those that a command left at its own end stay; others are killed.
type adopter struct {
	mu      sync.Mutex
	orphans map[Orphan]bool
}

// current is this process's adopter, set by Adopt.
var current atomic.Pointer[adopter]

// Adopt makes this process, whose only children are those of package proc, the parent of orphans. Call it once, before Start.
func Adopt() error {
	if err := proc.Adopt(); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	a := &adopter{orphans: map[Orphan]bool{}}
	current.Store(a)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		look := time.NewTicker(followPause)
		for {
			select {
			case <-ended:
				time.Sleep(buryPause)
				bury(proc.Processes())
			case <-look.C:
				a.mu.Lock()
				if len(a.orphans) > 0 {
					a.follow(proc.Processes())
				}
				a.mu.Unlock()
			}
		}
	}()
	return nil
}

func (a *adopter) add(all []Orphan) {
	if a == nil || len(all) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range all {
		a.orphans[l] = true
	}
	a.follow(proc.Processes())
}

// follow includes all descendants of abandoned processes, and forgets those that are gone.
func (a *adopter) follow(all []proc.Info) {
	next := map[Orphan]bool{}
	var roots []int
	for _, r := range all {
		if a.orphans[Orphan{r.PID, r.Start}] {
			next[Orphan{r.PID, r.Start}] = true
			roots = append(roots, r.PID)
		}
	}
	for _, r := range proc.Descendants(all, roots...) {
		next[Orphan{r.PID, r.Start}] = true
	}
	a.orphans = next
}

const (
	// killRounds bounds the rounds of a kill: even processes that fork as fast as they die are gone within a few.
	killRounds = 500
	// killLooks is how many checks in a row must find no process: one that starts during a check may be missed.
	killLooks = 5
)

// killStrays kills processes without a supervisor.
func (a *adopter) killStrays() {
	if a != nil {
		killAll(a.strays)
	}
}

// killAll kills the listed processes until none remains.
func killAll(list func() []proc.Info) {
	for round, none := 0, 0; round < killRounds && none < killLooks; round++ {
		all := list()
		for _, r := range all {
			_ = syscall.Kill(r.PID, syscall.SIGKILL)
		}
		none++
		if len(all) > 0 {
			none = 0
		}
		time.Sleep(lookPause)
		if current.Load() != nil {
			bury(proc.Processes())
		}
	}
}

// strays returns the processes that this one has adopted, with their descendants, except abandoned ones.
func (a *adopter) strays() []proc.Info {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := proc.Processes()
	a.follow(all)
	children := proc.Children()
	watched := map[int]bool{}
	for _, pid := range children {
		watched[pid] = true
	}
	for _, r := range proc.Descendants(all, children...) {
		watched[r.PID] = true
	}
	var strays []proc.Info
	for _, r := range proc.Descendants(all, os.Getpid()) {
		if !watched[r.PID] && !a.orphans[Orphan{r.PID, r.Start}] {
			strays = append(strays, r)
		}
	}
	return strays
}

// EndAll kills all descendants of this process, which adopts, including processes that commands have left.
func EndAll() { proc.EndChildren(func() { bury(proc.Processes()) }) }

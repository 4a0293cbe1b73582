package reap

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// buryPause is between two looks for orphans that have ended: one look finds all that have ended meanwhile.
const buryPause = 100 * time.Millisecond

// followPause is between two looks at what was left behind: what it starts must have been seen before it ends, or is taken for a stray then.
const followPause = 5 * time.Second

// family is all that the commands of this process have started. This process adopts what loses its parent and its supervisor: what a command has left behind
// at its own end stays, and what is nobody's, because its supervisor was killed, is killed.
type family struct {
	mu          sync.Mutex
	supervisors map[int]bool
	left        map[Left]bool
}

// kin is this process's family: to adopt is a property of the process.
var kin = sync.OnceValue(func() *family {
	_ = proc.Adopt() // it cannot fail since Linux 3.4
	f := &family{supervisors: map[int]bool{}, left: map[Left]bool{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		look := time.NewTicker(followPause)
		for {
			select {
			case <-ended:
				time.Sleep(buryPause)
				f.bury()
			case <-look.C:
				f.mu.Lock()
				if len(f.left) > 0 {
					f.follow(proc.Relatives())
				}
				f.mu.Unlock()
			}
		}
	}()
	return f
})

// bury takes the exit codes of orphans that have ended. Those of supervisors are for whoever waits for them.
func (f *family) bury() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range proc.Relatives() {
		if r.Parent == os.Getpid() && !r.Alive && !f.supervisors[r.PID] {
			_, _ = syscall.Wait4(r.PID, nil, syscall.WNOHANG, nil)
			delete(f.left, Left{r.PID, r.Start})
		}
	}
}

func (f *family) leave(all []Left) {
	if len(all) == 0 {
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

// ended is called when a supervisor has ended; with an error if it had not reported its command's end.
func (f *family) ended(pid int, err error) {
	f.mu.Lock()
	delete(f.supervisors, pid)
	f.mu.Unlock()
	if err != nil {
		f.killStrays()
	}
}

const (
	// strayRounds bounds the rounds of a kill: what forks as fast as it dies loses within a few.
	strayRounds = 500
	// strayLooks without a stray in a row are its end: one that begins while it is looked may be missed.
	strayLooks = 5
)

func (f *family) killStrays() {
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
		f.bury()
	}
}

// strays are the processes that descend from this one, from no supervisor that lives, and were not left behind.
func (f *family) strays() []proc.Relative {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := proc.Relatives()
	f.follow(all)
	watched := map[int]bool{}
	var supervisors []int
	for pid := range f.supervisors {
		supervisors = append(supervisors, pid)
		watched[pid] = true
	}
	for _, r := range proc.Below(all, supervisors...) {
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

// EndAll kills all that descends from this process, also what commands have left behind.
func EndAll() { proc.EndChildren(kin().bury) }

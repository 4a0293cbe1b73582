package proc

import (
	"runtime"
	"sync"
)

// PrestartThreads creates n threads that wait for work: the Go runtime ends a program that cannot get a needed thread.
// Call it before code that may use up all processes of the box.
func PrestartThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			// A locked goroutine that waits occupies its thread; unlocked again, the thread goes idle and stays.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	done.Wait()
}

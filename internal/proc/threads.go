package proc

import (
	"runtime"
	"sync"
)

// PrestartThreads creates n threads that wait for work. The Go runtime ends a program that needs a new thread and
// cannot get one. A process that must survive code that uses up all processes of the box (threads count) calls it
// before that code starts.
func PrestartThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			// A locked goroutine that waits occupies its thread, so that the next
			// one gets another; unlocked again, the thread goes idle and stays.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	done.Wait()
}

package proc

import (
	"runtime"
	"sync"
)

// KeepThreads makes n threads that wait for work. A Go program that needs a new
// thread and gets none is ended by its runtime; a process that must outlive code that uses up
// every process of the box (each thread is one) has them before that code starts.
func KeepThreads(n int) {
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

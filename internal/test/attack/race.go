package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// raceLog is where the racer writes, raceOver what ends it.
	raceLog  = "/tmp/attack-race"
	raceOver = "/tmp/attack-race-over"
	// raceTime is longer than a run takes to get to its agent.
	raceTime = 2 * time.Minute
	// raceTarget is what a link of the racer leads to: the memory of the process that opens it.
	raceTarget = "/proc/self/mem"
)

// race is what setup leaves behind: as soon as boot makes something for the agent in a directory that all can write
// in, it tries to put a link in its place, which boot would open as root.
func race() error {
	log, err := os.Create(raceLog)
	if err != nil {
		return err
	}
	defer log.Close()
	seen, won := map[string]bool{}, 0
	for end := time.Now().Add(raceTime); time.Now().Before(end); {
		if _, err := os.Lstat(raceOver); err == nil {
			break
		}
		dirs, _ := filepath.Glob("/tmp/sandbox-agent-*") // the pattern is good
		for _, dir := range dirs {
			for _, path := range []string{dir, filepath.Join(dir, "prompt"), filepath.Join(dir, "notice")} {
				seen[dir] = true
				if os.Rename(path, path+".raced") == nil || os.Remove(path) == nil || os.Symlink(raceTarget, path) == nil {
					_ = os.Symlink(raceTarget, path)
					won++
				}
			}
		}
	}
	fmt.Fprintf(log, "saw %d folders of boot's, replaced %d\n", len(seen), won)
	return nil
}

// raced ends the racer and says what came of it, and what this process's own standard input is.
func raced(*Config) (string, bool) {
	if err := os.WriteFile(raceOver, nil, 0o600); err != nil {
		return short(err), true
	}
	var said string
	for end := time.Now().Add(patience); said == "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(raceLog)
		if err != nil {
			return "there was no racer: " + short(err), true
		}
		said = strings.TrimSpace(string(b))
	}
	var st syscall.Stat_t
	err := syscall.Fstat(0, &st)
	regular := err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG
	in, _ := os.Readlink("/proc/self/fd/0") // only to be shown
	saw := strings.HasPrefix(said, "saw ") && !strings.HasPrefix(said, "saw 0 ")
	return said + ", the prompt comes from " + in, !saw || !strings.HasSuffix(said, "replaced 0") || !regular ||
		!strings.HasPrefix(in, "/tmp/sandbox-agent-prompt-")
}

package jailshim

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// maxLog bounds a log, in bytes: what the sandbox says cannot fill the machine's disk.
const maxLog = 256 << 10

// log has the messages of the sandbox and its shim; when it is full, it starts over.
type log struct {
	mu   sync.Mutex
	f    *os.File
	n    int64
	tail []byte // its end
}

func openLog(path string) (*log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's log: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's log: %w", err)
	}
	return &log{f: f, n: st.Size()}, nil
}

// Write never fails: the sandbox does not end for its log.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	l.tail = l.tail[max(0, len(l.tail)-maxOutput):]
	if l.n += int64(len(p)); l.n > maxLog && l.f.Truncate(0) == nil {
		l.n = int64(len(p))
	}
	_, _ = l.f.Write(p[:min(len(p), maxLog)])
	return len(p), nil
}

// text is the end of what was said.
func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := strings.TrimSpace(string(l.tail)); t != "" {
		return t
	}
	return "it ended without a word"
}

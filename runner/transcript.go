package runner

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/runner/harness"
)

// maxTranscript bounds what is read of a transcript, in bytes: the agent can
// make the file as large as its disk.
const maxTranscript = 256 << 20

// keepTranscript copies the agent's own record into the logs and returns the
// last cost in it. The agent owns the place and may have put links or pipes there: the
// file is opened below its home only, without waiting, and must be a regular one.
func (a *agentRun) keepTranscript(rec harness.Recorder) (cost *float64, err error) {
	root, err := os.OpenRoot(a.Home)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	names, err := fs.Glob(root.FS(), rec.Transcript(a.run))
	if err != nil || len(names) == 0 {
		return nil, err // an agent that failed early has none
	}
	src, err := root.OpenFile(names[0], os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = src.Close() }()
	if st, err := src.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", names[0])
	}
	log, err := a.logFile(AgentTranscript)
	if err != nil {
		return nil, err
	}
	clean := a.Redact.Writer(log)
	lines := proc.NewLines(func(line []byte, _ int64) {
		if usd, ok := rec.Cost(line); ok {
			cost = &usd
		}
	})
	_, err = io.Copy(io.MultiWriter(clean, lines), io.LimitReader(src, maxTranscript))
	lines.Close()
	for _, c := range []io.Closer{clean, log} {
		if cerr := c.Close(); err == nil {
			err = cerr
		}
	}
	return cost, err
}

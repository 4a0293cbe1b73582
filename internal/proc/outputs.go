package proc

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// outputs are the pipes of a child whose output goes to writers. The package os/exec would make
// them, too, but cuts them some time after the child's end whether they have been read or
// not, and on a busy machine that is output lost without a word.
type outputs struct {
	read, write []*os.File
	to          []io.Writer
	feeds       []*PipeCopier
}

// outputs gives a command its output: a file as it is, else a pipe; one for both streams
// where both go to the same writer, so that what comes stays in order.
func (s *Spec) outputs(cmd *exec.Cmd) (*outputs, error) {
	var o outputs
	var err error
	if cmd.Stdout, err = o.add(s.Stdout); err != nil {
		return nil, err
	}
	if s.Stderr != nil && same(s.Stdout, s.Stderr) {
		cmd.Stderr = cmd.Stdout
		return &o, nil
	}
	if cmd.Stderr, err = o.add(s.Stderr); err != nil {
		return nil, errors.Join(err, o.close(o.read), o.close(o.write))
	}
	return &o, nil
}

// same reports whether two writers are one; those that cannot be compared are two.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }()
	return a == b
}

func (o *outputs) add(w io.Writer) (io.Writer, error) {
	if w == nil {
		return nil, nil
	}
	if f, ok := w.(*os.File); ok {
		return f, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.read, o.write, o.to = append(o.read, read), append(o.write, write), append(o.to, w)
	return write, nil
}

func (o *outputs) close(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// started begins to read, or takes everything back where the child could not be started.
func (o *outputs) started(err error) error {
	_ = o.close(o.write) // the child has its own
	if err != nil {
		return errors.Join(err, o.close(o.read))
	}
	for i, r := range o.read {
		o.feeds = append(o.feeds, NewPipeCopier(r, o.to[i]))
	}
	return nil
}

// end waits until what the child has written is passed on, and takes the pipes from what it has left behind.
func (o *outputs) end() (err error) {
	until := time.Now().Add(pipeDelay)
	for _, c := range o.feeds {
		c.Abandon(time.Until(until))
		err = errors.Join(err, c.Err())
	}
	return err
}

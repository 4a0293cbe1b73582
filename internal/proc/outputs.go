package proc

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// outputs are the pipes of a child whose output goes to writers. os/exec would cut them some time after the child's end
// even if unread, which loses output on a busy machine.
type outputs struct {
	read, write []*os.File
	to          []io.Writer
	feeds       []*PipeCopier
}

// outputs connects a command's output: a file directly, else a pipe; one for both streams if both go to the same writer.
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

// same reports whether two writers are equal; incomparable ones are not.
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

// started starts reading, or closes the pipes after a failed start.
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

// end waits until the child's output is passed on, and closes the pipes of its descendants.
func (o *outputs) end() (err error) {
	until := time.Now().Add(pipeDelay)
	for _, c := range o.feeds {
		c.Abandon(time.Until(until))
		err = errors.Join(err, c.Err())
	}
	return err
}

package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// enter brings the calling thread into the group's hierarchies of version 1, where threads are members by themselves and a child begins
// where the thread is that forks it. The thread must not be used for anything else.
func (c *Cgroup) enter() error {
	if c == nil {
		return nil
	}
	for _, dir := range c.V1 {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0); err != nil { // 0 means who writes
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	return nil
}

// begin makes the kernel create the command's process in the group of version 2. The caller closes what it returns after the start.
func (c *Cgroup) begin(cmd *exec.Cmd) (done func(), err error) {
	if c == nil || c.Unified == "" {
		return func() {}, nil
	}
	d, err := os.Open(c.Unified)
	if err != nil {
		return nil, fmt.Errorf("open control group: %w", err)
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(d.Fd())
	return func() { _ = d.Close() }, nil
}

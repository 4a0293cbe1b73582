package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// enter brings the calling thread into the group's version 1 hierarchies, where a child begins in its forking thread's
// group. The thread must not be used for anything else.
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

// begin makes the kernel create the command's process in the version 2 group. The caller calls done after the start.
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

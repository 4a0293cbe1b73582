package roles

import (
	"errors"
	"fmt"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/usershell"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Shell turns this process into the user's shell, or a command, next to the agent; with check it only reports whether it can.
func Shell(argv []string, check bool) int {
	err := func() error {
		if check {
			_, in, err := usershell.ReadEntry(usershell.Dir)
			if err != nil {
				return err
			}
			return in.Close()
		}
		groups, err := cgroups.Open()
		if err != nil {
			return err
		}
		user, err := sandboxUser(groups.Of(cgroups.Agent))
		if err != nil {
			return err
		}
		return usershell.Enter(usershell.Dir, user, argv)
	}()
	if err == nil {
		return workorder.ExitOK
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, usershell.ErrClosed) {
		return workorder.ExitBox
	}
	return workorder.ExitGeneral
}

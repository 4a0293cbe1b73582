package runtime

import "fmt"

// DeniedError means that this user may not open an engine's socket.
type DeniedError struct {
	Socket string
	Group  string // may open the socket; "" if unknown
}

func (e *DeniedError) Error() string { return "permission denied for the socket " + e.Socket }

func (e *DeniedError) Unwrap() error { return ErrUnavailable }

// Hint says how to get access.
func (e *DeniedError) Hint() string {
	if e.Group == "" {
		return fmt.Sprintf(
			"only root may use the engine's socket: see `ls -l %s`, or point DOCKER_HOST at another engine",
			e.Socket,
		)
	}
	return fmt.Sprintf(
		"add yourself to the group %s, which may use the engine: `sudo usermod -aG "+
			"%[1]s \"$USER\"`, then log in again (its members have root's rights on this machine)",
		e.Group,
	)
}

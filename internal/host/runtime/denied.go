package runtime

import "fmt"

// DeniedError is an engine whose socket this user may not open.
type DeniedError struct {
	Socket string
	// Group may open the socket; empty when it is not known.
	Group string
}

func (e *DeniedError) Error() string { return "no right to use the socket " + e.Socket }

// Unwrap makes it an engine that does not answer, for those who only want to know that.
func (e *DeniedError) Unwrap() error { return ErrUnavailable }

// Hint is what the user can do about it.
func (e *DeniedError) Hint() string {
	if e.Group == "" {
		return fmt.Sprintf(
			"the engine's socket is open to root alone: look at `ls -l %s`, or point DOCKER_HOST at an engine that you may use",
			e.Socket,
		)
	}
	return fmt.Sprintf(
		"the group %s may use the engine: `sudo usermod -aG "+
			"%[1]s \"$USER\"`, then log in again (who may use it has the rights of root on this machine)",
		e.Group,
	)
}

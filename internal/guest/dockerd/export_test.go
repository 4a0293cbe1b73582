package dockerd

// ErrInUse is for tests in a box.
var ErrInUse = errInUse

// Done is closed when the engine is over for good.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err is why the engine is over; nil while it lives and after an orderly Stop.
func (e *Engine) Err() error {
	select {
	case <-e.done:
		return e.doneErr
	default:
		return nil
	}
}

package credentials

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A fetch that is stopped has ended when wait returns: until then it writes to a folder that is removed next.
func TestStoppedFetchHasEnded(t *testing.T) {
	t.Parallel()
	why := errors.New("too large")
	ctx, stop := context.WithCancelCause(t.Context())
	done, ended := make(chan error), make(chan struct{})
	go func() {
		<-ctx.Done()
		done <- errors.New("read on a closed body")
		close(ended)
	}()
	if err := wait(ctx, done, func() { stop(why) }); !errors.Is(err, why) {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it still works")
	}
}

package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A save that is interrupted has its grace, also one that begins after.
func TestOutlast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, interrupt := context.WithCancel(t.Context())
		early, cancel := Outlast(parent)
		defer cancel()
		time.Sleep(time.Hour)
		if early.Err() != nil {
			t.Error("it ends by itself")
		}
		interrupt()
		late, cancel := Outlast(parent)
		defer cancel()
		time.Sleep(saveGrace - time.Second)
		if early.Err() != nil || late.Err() != nil {
			t.Error("there is no grace")
		}
		time.Sleep(time.Second + time.Millisecond)
		if early.Err() == nil || late.Err() == nil {
			t.Error("it does not end")
		}
	})
}

package github

import (
	"context"
	"time"
)

// SetPause replaces the pauses between attempts.
func (c *Client) SetPause(pause func(ctx context.Context, d time.Duration) error) { c.pause = pause }

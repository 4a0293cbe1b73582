package proof

import "time"

// Bounded is a configuration whose commands may take so long.
func (c Config) Bounded(limit time.Duration) Config {
	c.limit = limit
	return c
}

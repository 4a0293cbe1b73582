package proof

import "time"

// Bounded is a configuration whose commands may take so long.
func (c Config) Bounded(limit time.Duration) Config {
	c.limit = limit
	return c
}

// WithGit is a configuration whose checkouts are made by git with this environment beside its own.
func (c Config) WithGit(env ...string) Config {
	c.gitEnv = env
	return c
}

package git

import (
	"fmt"
	"slices"
)

// NoPrompt returns an environment in which git and its children never prompt.
func NoPrompt() []string { return []string{"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS="} }

// NoUser returns the environment without a user's configuration and without replacements of objects.
func NoUser() []string { return []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_NO_REPLACE_OBJECTS=1"} }

// NoMachine returns the environment with only the repository's configuration.
func NoMachine() []string {
	return []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent"}
}

// ConfigEnv returns the environment that sets git's configuration: pairs of name and value. Unlike -c, it accepts any name.
func ConfigEnv(pairs ...string) (env []string) {
	n := 0
	for pair := range slices.Chunk(pairs, 2) {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, pair[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, pair[1]))
		n++
	}
	return append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
}

package git

import (
	"fmt"
	"slices"
)

// NoPrompt is an environment in which git and its children never prompt.
func NoPrompt() []string { return []string{"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS="} }

// NoUser is the environment without a user's own configuration, which may be damaged or hide work behind rules that the
// repository does not know, and without replacements of objects.
func NoUser() []string { return []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_NO_REPLACE_OBJECTS=1"} }

// NoMachine is the environment without any configuration but a repository's own.
func NoMachine() []string {
	return []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent"}
}

// ConfigEnv is the environment that sets keys of git's configuration: pairs of a name and a value. It holds names that -c
// takes for others, such as one with a "=" in it.
func ConfigEnv(pairs ...string) (env []string) {
	n := 0
	for pair := range slices.Chunk(pairs, 2) {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, pair[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, pair[1]))
		n++
	}
	return append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
}

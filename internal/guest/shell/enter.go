package shell

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// program is the default shell.
const program = "/bin/bash"

// oomScore equals the agent's: the kernel kills a shell before processes that the box needs.
const oomScore = 500

// Enter replaces this process, which is root's, by a shell or the command argv, as the agent's user and with
// the agent's restrictions. It returns only an error. user includes the agent's control group.
func Enter(dir string, user *proc.Credential, argv []string) error {
	agent, in, err := Knock(dir)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	own := *user
	if agent.Place != "" {
		if own.Place, err = proc.OpenPlace(agent.Place); err != nil {
			return err
		}
	}
	env := agent.Env
	if term := os.Getenv("TERM"); term != "" && terminal(os.Stdin) {
		env = append(slices.Clone(env), "TERM="+term) // the agent has no terminal
	}
	if len(argv) == 0 {
		argv = []string{program}
	}
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		handOver(f, &own)
	}
	return proc.Become(proc.Spec{Argv: argv, Dir: agent.Dir, Env: lastOf(env), User: &own, OOMScoreAdj: oomScore})
}

// lastOf returns an environment in which each variable occurs once: the last value counts, as for the agent.
func lastOf(env []string) (list []string) {
	seen := map[string]bool{}
	for _, kv := range slices.Backward(env) {
		if name, _, _ := strings.Cut(kv, "="); !seen[name] {
			seen[name] = true
			list = append(list, kv)
		}
	}
	slices.Reverse(list)
	return list
}

func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// handOver gives a terminal or pipe to the user, who can then open it by name (/dev/stdout); a public device
// stays root's.
func handOver(f *os.File, user *proc.Credential) {
	st, err := f.Stat()
	if err == nil && (st.Mode()&os.ModeNamedPipe != 0 || terminal(f)) {
		_ = f.Chown(int(user.UID), int(user.GID)) // best effort: most programs work without it
	}
}

package tools

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// asRoot: otherwise apt downloads as a separate user, which the network policy treats as untrusted.
const asRoot = "APT::Sandbox::User=root"

// lastWords is how many bytes of apt's output an error shows.
const lastWords = 1 << 10

// Apt is the distribution's package manager. It is not safe for concurrent use.
type Apt struct {
	// Log receives its output; nil drops it.
	Log io.Writer
	// Env is the environment of its programs; nil means the current one.
	Env []string

	updated bool
}

// Update fetches the lists of packages, once.
func (m *Apt) Update(ctx context.Context) error {
	if m.updated {
		return nil
	}
	err := m.run(ctx, "apt-get", "update", "-q", "-o", asRoot)
	m.updated = err == nil
	return err
}

// Install installs packages that are not installed yet. A name may have a version, as apt-get takes it: "jq=1.7.1-3".
func (m *Apt) Install(ctx context.Context, packages []string) error {
	for _, p := range packages {
		if strings.HasSuffix(p, "-") {
			return fmt.Errorf("install %s: a name that ends in a hyphen removes a package", p)
		}
	}
	if m.installed(ctx, packages) {
		return nil
	}
	err := m.Update(ctx)
	if err == nil {
		err = m.run(ctx, append([]string{"apt-get", "install", "-q", "-y", "-o", asRoot, "--no-install-recommends", "--"}, packages...)...)
	}
	if err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(packages, ", "), err)
	}
	return nil
}

// installed reports whether all packages are installed. Names with a version or a pattern are left to apt.
func (m *Apt) installed(ctx context.Context, packages []string) bool {
	if strings.ContainsAny(strings.Join(packages, " "), "=/*?") {
		return false
	}
	out, err := proc.Output(ctx, proc.Spec{
		Argv: append([]string{"dpkg-query", "--show", "--showformat=${db:Status-Status}\n", "--"}, packages...), Dir: "/", Env: m.environ(),
	})
	if err != nil {
		return false // some are unknown
	}
	for line := range strings.Lines(string(out)) {
		if strings.TrimSpace(line) != "installed" {
			return false
		}
	}
	return true
}

// Clean removes files that only fetching needs, to make a stored image smaller.
func (m *Apt) Clean(ctx context.Context) error {
	m.updated = false
	if err := m.run(ctx, "apt-get", "clean"); err != nil {
		return err
	}
	const lists = "/var/lib/apt/lists"
	if err := os.RemoveAll(lists); err != nil {
		return err
	}
	return os.MkdirAll(lists, 0o755)
}

func (m *Apt) run(ctx context.Context, argv ...string) error {
	log := cmp.Or(m.Log, io.Discard)
	tail := proc.NewTail(lastWords)
	if err := proc.Run(ctx, proc.Spec{Argv: argv, Dir: "/", Env: m.environ(), Stdout: log, Stderr: io.MultiWriter(log, tail)}); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(tail.String()))
	}
	return nil
}

func (m *Apt) environ() []string {
	env := m.Env
	if env == nil {
		env = os.Environ()
	}
	return append(slices.Clip(env), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
}

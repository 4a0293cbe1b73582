package rootgit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Workspace is the directory that the task works in, git's system configuration and the generated .env. Files inside it
// are only accessed as the agent's user.
type Workspace struct {
	Dir  string
	User *proc.Credential // nil means the current user
	Home string
	// GitConfig is git's system-wide file: root's own configuration is not the agent's.
	GitConfig string
	// Adds means that ConfigureGit adds to what another Workspace wrote to GitConfig.
	Adds bool
}

// Make creates the empty directory for the user.
func (w *Workspace) Make() error {
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return fmt.Errorf("create workspace: %w", err)
	}
	if w.User != nil {
		if err := os.Chown(w.Dir, int(w.User.UID), int(w.User.GID)); err != nil {
			return fmt.Errorf("create workspace: %w", err)
		}
	}
	return nil
}

// gitConfigMark starts the part that ConfigureGit has written, up to the end of the file.
const gitConfigMark = "# written by sandbox-agent\n"

// ConfigureGit replaces, unless Adds is set, what it wrote to the system-wide configuration: safe directories, the identity of commits, and
// the server for reads of remote.
func (w *Workspace) ConfigureGit(id workorder.Identity, safe []string, remote, insteadBy string) error {
	old, err := os.ReadFile(w.GitConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("configure git: %w", err)
	}
	before, _, _ := strings.Cut(string(old), gitConfigMark)
	before += gitConfigMark
	if w.Adds {
		before = string(old)
	}
	var b strings.Builder
	b.WriteString(before + "[safe]\n")
	for _, d := range safe {
		fmt.Fprintf(&b, "\tdirectory = %s\n", quote(d))
	}
	fmt.Fprintf(&b, "[user]\n\tname = %s\n\temail = %s\n", quote(id.Name), quote(id.Email))
	if insteadBy != "" {
		fmt.Fprintf(&b, "[url %s]\n\tinsteadOf = %s\n", quote(insteadBy), quote(remote))
	}
	if err := os.WriteFile(w.GitConfig, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("configure git: %w", err)
	}
	return nil
}

// quote encodes a value in git's configuration syntax.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

// Hook writes a hook of the work tree's repository.
func (w *Workspace) Hook(ctx context.Context, name, script string) error {
	path := ".git/hooks/" + name
	if err := w.feed(ctx, "mkdir -p .git/hooks && cat >"+path+" && chmod 755 "+path, script); err != nil {
		return fmt.Errorf("write hook %s: %w", name, err)
	}
	return nil
}

// EnvFile is the file with the generated variables.
const EnvFile = ".env"

// hasEnvFile is an exit code that no other command in the script of WriteEnvFile returns.
const hasEnvFile = 73

// WriteEnvFile writes the variables to .env and makes git ignore it. An existing .env stays unchanged, with a warning.
func (w *Workspace) WriteEnvFile(ctx context.Context, env map[string]string) (warning string, err error) {
	// noclobber opens with O_EXCL, which does not follow a link.
	err = w.feed(
		ctx, fmt.Sprintf("if [ -e %[1]s ] || [ -L %[1]s ]; then exit %[2]d; fi; umask 077; set -C; cat >%[1]s", EnvFile, hasEnvFile), dotEnv(env),
	)
	switch {
	case proc.ExitCode(err) == hasEnvFile:
		return "the repository has its own .env: it is not overwritten; the variables are in the environment of every command", nil
	case err != nil:
		return "", fmt.Errorf("write .env: %w", err)
	}
	if err := w.feed(ctx, "mkdir -p .git/info && cat >>.git/info/exclude", "/"+EnvFile+"\n"); err != nil {
		return "", fmt.Errorf("exclude .env from git: %w", err)
	}
	return "", nil
}

func (w *Workspace) feed(ctx context.Context, script, input string) error {
	_, err := proc.Output(ctx, proc.Spec{
		Argv: []string{"/bin/sh", "-c", script}, Dir: w.Dir, User: w.User,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.Home}, Stdin: strings.NewReader(input),
	})
	return err
}

// dotEnv returns the content of a .env file that the common readers and a shell interpret identically.
func dotEnv(env map[string]string) string {
	var b strings.Builder
	b.WriteString("# written by sandbox-agent, not part of the repository\n")
	for _, k := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "%s=%s\n", k, dotEnvValue(env[k]))
	}
	return b.String()
}

func dotEnvValue(v string) string {
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_./:@%+,=-", r)
	}
	switch {
	case strings.IndexFunc(v, special) < 0:
		return v
	case !strings.ContainsAny(v, "'\n\r"):
		return "'" + v + "'"
	default:
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`", "\n", `\n`, "\r", `\r`).Replace(v) + `"`
	}
}

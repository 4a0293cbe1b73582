package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// runsScript finds the agent's window: it prints 1 where its program runs.
const runsScript = `command -v tmux >/dev/null || { echo "there is no tmux in it" >&2; exit 9; }
tmux list-panes -t "=$1:=$2" -F '#{pane_dead}' 2>/dev/null | grep -qx 0 && echo 1
exit 0`

// startScript starts the agent's program in a window of a session of tmux, which it creates if necessary. The program's variables come from
// a file that it removes. The window's options are set in the same call: a program that ends at once is reported with its output. (tmux
// before 3.2 keeps no window of a program that has failed.)
const startScript = `set -eu
session=$1 window=$2 dir=$3 launcher=$4 at="=$1:=$2"
tmux kill-window -t "$at" 2>/dev/null || :
if tmux has-session -t "=$session" 2>/dev/null; then
	set -- new-window -d -t "=$session:"
else
	set -- new-session -d -s "$session" -x 200 -y 50
fi
set -- "$@" -n "$window" -c "$dir" "exec sh $launcher"
for option in 'automatic-rename off' 'allow-rename off' 'remain-on-exit failed'; do
	set -- "$@" ';' set-window-option -t "$at" ${option}
done
` + runTmux + ` || tmux list-panes -t "$at" >/dev/null
sleep 0.5
dead=$(tmux list-panes -t "$at" -F '#{pane_dead}' 2>/dev/null) || {
	echo "its program has ended already, with exit code 0" >&2
	exit 1
}
case $dead in
*1*)
	tmux capture-pane -p -S - -t "$at" | grep -v '^$' | tail -n 15 >&2
	exit 1
	;;
esac`

// variablesScript prints those of the variables that there are.
const variablesScript = `export HOME="${HOME:-/}"
for name; do v=$(printenv "$name") && printf '%s=%s\n' "$name" "$v"; done; :`

// maxSettings bounds a file that an agent's program keeps settings in, in bytes.
const maxSettings = 64 << 20

// readFile is what a file has, nil where there is none.
func readFile(ctx context.Context, files *sandbox.Files, name string) ([]byte, error) {
	r, err := files.Open(ctx, name)
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxSettings+1))
	if err == nil && len(b) > maxSettings {
		err = fmt.Errorf("%s has more than %d MiB", name, maxSettings>>20)
	}
	return b, err
}

// addScript prepares a home directory for a program's files. It fails unless the sandbox has the default image, or one based on it.
const addScript = `set -e; test -e /usr/share/sandbox-agent/image.json
mkdir -p "$HOME/.local/bin" "$HOME/.local/lib"; printf %s "$HOME"`

// hasAgent reports whether a sandbox has tmux and an agent's program. If only the program is missing, it copies the program from the
// default image into the home directory of a sandbox with that image.
func (g Agents) hasAgent(ctx context.Context, sb *sandbox.Sandbox, h workorder.Harness) (bool, error) {
	line, err := agentCommand(agentOptions{Harness: h})
	if err != nil {
		return false, err
	}
	run := func(argv ...string) (sandbox.RunResult, error) {
		r, err := sb.Run(ctx, sandbox.Command{Argv: argv, Dir: "/", Timeout: time.Minute, Unrecorded: true})
		return r, SandboxError(err)
	}
	program := line.Argv[0]
	r, err := run("sh", "-c", `command -v tmux >/dev/null || exit 9; command -v "$1" >/dev/null`, "sh", program)
	if err != nil || r.ExitCode == 0 || r.ExitCode == 9 || h.Name == workorder.HarnessCommand {
		return err == nil && r.ExitCode == 0, err
	}
	if r, err = run("sh", "-c", addScript); err != nil || r.ExitCode != 0 {
		return false, err
	}
	be, err := g.Engine()
	if err != nil {
		return false, err
	}
	g.Say(fmt.Sprintf("adding %s to sandbox %s", h.Name, sb.Name()))
	show, done := g.buildEvents()
	defer done()
	img, err := be.Images.Ensure(ctx, "", []string{h.Name}, show)
	if err != nil {
		return false, err
	}
	home := string(r.Stdout)
	for _, dir := range []string{"lib", "bin"} { // a program with more files has a directory of its own
		found, err := be.Images.ReadFiles(ctx, cmp.Or(img.Name, img.ID), "/usr/local/"+dir+"/"+program, func(files io.Reader) error {
			return sb.Files().TarIn(ctx, home+"/.local/"+dir, files)
		})
		if err == nil && found && dir == "lib" {
			_, err = run("ln", "-sf", "../lib/"+program+"/bin/"+program, home+"/.local/bin/"+program)
		}
		if err != nil {
			return false, SandboxError(err)
		}
		if found {
			break
		}
	}
	r, err = run("sh", "-c", `command -v "$1" >/dev/null`, "sh", program)
	return err == nil && r.ExitCode == 0, err
}

// begin starts the agent, unless it runs.
func begin(
	ctx context.Context, sb *sandbox.Sandbox, agent, prompt string, h workorder.Harness, may projects.Permissions, b writtenBriefing,
	secrets map[string]string,
) (began bool, err error) {
	s := sb.Spec()
	run := func(argv ...string) (string, error) {
		r, err := sb.Run(ctx, sandbox.Command{Argv: argv, Dir: "/", Timeout: time.Minute, Unrecorded: !slices.Contains(argv, startScript)})
		if err != nil {
			return "", SandboxError(err)
		}
		if r.ExitCode != 0 {
			return "", fmt.Errorf("start %s in sandbox %s: %s", agent, s.Name, text.Clean(strings.TrimSpace(string(r.Stderr))))
		}
		return strings.TrimSpace(string(r.Stdout)), nil
	}
	if runs, err := run("sh", "-c", runsScript, "sh", AgentSession, agent); err != nil || runs == "1" {
		return false, err
	}
	env := map[string]string{}
	said, err := run(append([]string{"sh", "-c", variablesScript, "sh"}, agentEnvNames()...)...)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(said) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[name] = value
	}
	maps.Copy(env, secrets)
	dir := Workdir(s)
	noProviderTools := false
	if s.Box != nil {
		gateway := workorder.Gateway{ProviderTools: s.Box.Gateway.ProviderTools}
		noProviderTools = !gateway.RunsProviderTools(workorder.NetworkMode(s.Network))
	}
	line, err := agentCommand(agentOptions{
		Harness: h, Prompt: prompt, Briefing: b.text, File: b.file, Workdir: dir, Env: env,
		NoProviderTools: noProviderTools, Permissions: may,
	})
	if err != nil {
		return false, err
	}
	const findScript = `command -v "$1" >/dev/null || { echo "it has no program $1" >&2; exit 1; }`
	if _, err := run("sh", "-c", findScript, "sh", line.Argv[0]); err != nil {
		return false, exiterr.New(workorder.ExitGeneral, err,
			"`sandbox-agent up --runtime box` has agents' programs; in an image of your own, install it")
	}
	files := sb.Files()
	put := func(name, content string) error {
		return files.Write(ctx, name, strings.NewReader(content), sandbox.WriteOptions{Mode: new(fs.FileMode(0o600)), Parents: true})
	}
	for name, content := range line.Files {
		old, err := readFile(ctx, files, name)
		if err != nil {
			return false, SandboxError(err)
		}
		now, err := content(old)
		if err == nil && !bytes.Equal(now, old) {
			err = put(name, string(now))
		}
		if err != nil {
			return false, SandboxError(err)
		}
	}
	var script bytes.Buffer
	script.WriteString("rm -f \"$0\"\n")
	for _, kv := range line.Env {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&script, "export %s=%s\n", name, text.Shell(value))
	}
	for name, value := range secrets {
		fmt.Fprintf(&script, "export %s=%s\n", name, text.Shell(value))
	}
	fmt.Fprintf(&script, "exec %s\n", text.Shell(line.Argv...))
	launcher := "/dev/shm/.sandbox-agent-" + rand.Text()
	if err := put(launcher, script.String()); err != nil {
		return false, SandboxError(err)
	}
	if _, err := run("sh", "-c", startScript, "sh", AgentSession, agent, dir, launcher); err != nil {
		_ = files.Remove(context.WithoutCancel(ctx), launcher) // it is gone where it was read
		return false, err
	}
	return true, nil
}

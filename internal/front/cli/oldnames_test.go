package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestOldSpellings: what the previous release spelled otherwise means the same for one more release, and help and
// completion do not show it.
func TestOldSpellings(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	notebook := filepath.Join(state, "n.ipynb")
	write(t, notebook, `{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[{"id":"a","cell_type":"code","metadata":{},"outputs":[],`+
		`"execution_count":null,"source":"1"}]}`)
	run := func(line string) (code int, out string) {
		var said bytes.Buffer
		a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said}, app.Env{
			Getenv: func(name string) string { return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name] },
		})
		code = Main(t.Context(), a, strings.Split(line, " "))
		return code, said.String()
	}
	for _, row := range []struct{ old, now, verb, flag string }{
		{"exec --background dev true", "exec --detach dev true", "exec", "background"},
		{"exec dev --background -- true", "exec --detach dev true", "exec", "background"},
		{"exec --background --tty dev true", "exec --detach --tty dev true", "exec", ""},
		{"exec dev -- ls -la", "exec dev ls -la", "exec", ""},
		{"exec dev --json -- ls -la", "exec --json dev ls -la", "exec", ""},
		{"pool exec L -- ls -la", "pool exec L ls -la", "pool exec", ""},
		{"run --env python 6*7", "run python 6*7", "run", ""},
		{"run -e python 6*7", "run python 6*7", "run", ""},
		{"run -e python -e A=b 6*7", "run -e A=b python 6*7", "run", ""},
		{"notebook run --env python " + notebook, "notebook run --preset python " + notebook, "notebook run", "env"},
		{"notebook run -e python " + notebook, "notebook run --preset python " + notebook, "notebook run", "env"},
		{"env list --json", "preset list --json", "", ""},
		{"env validate " + notebook, "preset validate " + notebook, "", ""},
		{"policy check example.com example.com:8443", "network check example.com example.com:8443", "", ""},
		{"policy learn A1B2", "network suggest A1B2", "", ""},
		{"prune --dry-run --before 2w", "prune --dry-run --older-than 2w", "prune", "before"},
		{"rebase --with-foreign A1B2", "rebase --include-others A1B2", "rebase", "with-foreign"},
	} {
		code, out := run(row.old)
		want, said := run(row.now)
		clash := strings.Contains(row.now, "--detach --tty")
		if code != want || !clash && out != said || (code == workorder.ExitUsage) != clash {
			t.Errorf("%s: exit %d: %s\n%s: exit %d: %s", row.old, code, out, row.now, want, said)
		}
		if row.flag == "" {
			continue
		}
		cmd, _, err := emptyRoot().Find(strings.Fields(row.verb))
		if err != nil || cmd.Flags().Lookup(row.flag) == nil {
			t.Errorf("%s --%s: %v", row.verb, row.flag, err)
		}
		for _, line := range []string{row.verb + " --help", "__complete " + row.verb + " --"} {
			if code, out := run(line); code != 0 || strings.Contains(out, "--"+row.flag) {
				t.Errorf("%s: exit %d, shows --%s: %s", line, code, row.flag, out)
			}
		}
	}
}

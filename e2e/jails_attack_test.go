//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command that means harm, in sandboxes without a task. Its attempts are in e2e/attack.
func TestSandboxAttack(t *testing.T) {
	t.Parallel()
	program := buildAttack(t)
	for _, row := range []struct {
		kind    sandboxKind
		network string
	}{{sandboxKind{}, "none"}, {sandboxKind{}, "full"}, {rootsJail, "none"}, {rootsJail, "full"}, {usersJail, "none"}, {usersJail, "full"}} {
		name := row.kind.String() + ", " + row.network
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := row.kind.user(t)
			other := u.sandbox("victim-"+row.network, "--network", "none")
			if _, code := u.exec(other, "", "--", "sh", "-c", "umask 077; echo secret >$HOME/secret"); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			abstract := fmt.Sprintf("@sandbox-agent-e2e-%d-%s", os.Getpid(), strings.ReplaceAll(name, " ", ""))
			config, err := json.Marshal(map[string]any{
				"loopback": listening(t, "tcp", "127.0.0.1:0"), "loopback_works": row.kind.jail && row.network == "full",
				"abstract": listening(t, "unix", abstract), "state": u.state, "other": filepath.Join(u.state, "sandboxes", other, "home", "secret"),
			})
			if err != nil {
				t.Fatal(err)
			}
			dir := u.harm(program, config)
			args := []string{"--network", row.network, "--mount", dir + ":/harm-of:ro"}
			if !row.kind.jail {
				args = append(args, "--user", "1000:1000", "--env", "HOME=/tmp")
			}
			sb := u.sandbox("harmed-"+row.network, args...)
			got, code := u.exec(sb, "", "--", "/harm-of/attack", "sandbox", "/harm-of/config.json")
			rows := append(rowsOf(t, got.Stdout), u.supervisorKilled(sb))
			if code != 0 || len(rows) != sandboxAttempts+1 {
				t.Errorf("%d rows, exit code %d: %s", len(rows), code, got.Stderr)
			}
			checkRows(t, name, rows)
		})
	}
}

// sandboxAttempts are those of `attack sandbox`.
const sandboxAttempts = 29

// harm is a folder with the attacker and its configuration.
func (u *user) harm(program string, config []byte) string {
	u.t.Helper()
	dir := filepath.Join(u.dir, "harm")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644)); err != nil {
		u.t.Fatal(err)
	}
	copyProgram(u.t, program, filepath.Join(dir, "attack"))
	return dir
}

// rowsOf reads what the attacker prints.
func rowsOf(t *testing.T, printed string) []attackRow {
	t.Helper()
	list := filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(list, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	return attackRows(t, list)
}

// checkRows fails for what came out otherwise than expected, and keeps the rows for the table.
func checkRows(t *testing.T, box string, rows []attackRow) {
	t.Helper()
	saveTable(t, box, rows)
	for _, r := range rows {
		if !r.OK {
			t.Errorf("%s: expected %s, got: %s", r.Name, r.Expected, r.Got)
		}
	}
}

// supervisorKilled is an attempt to get away from one's supervisor by its death.
func (u *user) supervisorKilled(sb string) attackRow {
	u.t.Helper()
	const name = "stay when one's supervisor is killed"
	// Where the supervisor is another user's, the command ends by its time.
	u.exec(sb, "", "--timeout", "2s", "--", "sh", "-c", "setsid sleep 7654 & env -i setsid -f sleep 7654; (setsid sleep 7654 &); sleep 0.1; kill -KILL $PPID; sleep 7654 & wait")
	got, code := u.exec(sb, "", "--", "sh", "-c", "cat /proc/[0-9]*/comm | grep -c sleep; true")
	n := strings.TrimSpace(got.Stdout)
	return attackRow{Group: "a standalone sandbox", Name: name, Expected: "refused", Got: n + " processes are left", Through: n != "0", OK: n == "0" && code == 0}
}

// listening is an address of this machine at which somebody listens and takes whoever comes.
func listening(t *testing.T, network, address string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

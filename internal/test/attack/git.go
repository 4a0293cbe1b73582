package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// markers is where hostile configuration of the work tree says as whom it ran.
const markers = "/tmp/attack-markers"

// gitAttempts are the attempts on the remote, and the traps for readers of the work tree.
func gitAttempts() []attempt {
	g := func(name string, w want, run func(c *Config) (string, bool)) attempt {
		return attempt{group: "git", name: name, want: always(w), run: run}
	}
	inTree := func(args ...string) func(*Config) (string, bool) {
		return func(*Config) (string, bool) { return execute(append([]string{"git", "-C", "/workspace"}, args...)...) }
	}
	return []attempt{
		g("fetch from the remote without a credential (control)", works, inTree("fetch", "origin", "main")),
		g("push to the base branch", refused, inTree("push", "origin", "HEAD:refs/heads/main")),
		g("push to the task's own branch", refused, inTree("push", "origin", "HEAD:refs/heads/agent/x")),
		g("delete a branch", refused, inTree("push", "origin", ":refs/heads/main")),
		g("the remote itself, past the gateway", refused, func(c *Config) (string, bool) {
			return execute("git", "-c", "http.lowSpeedTime=5", "-c", "http.lowSpeedLimit=1", "ls-remote", c.Origin+"/../"+filepath.Base(c.Origin))
		}),
		g("another path of the git gateway", refused, func(*Config) (string, bool) {
			base, ok := execute("sh", "-c", `git config --system --get-regexp 'url\..*\.insteadof' | sed 's/^url\.//; s/\.insteadof .*//'`)
			if !ok || base == "" {
				return "no gateway: " + base, true
			}
			return get(base + "/../../../etc/passwd")
		}),
		g("lay traps in the work tree (control)", works, traps),
	}
}

// traps makes everything that git runs or follows say as whom it ran, and with what
// in its environment.
func traps(*Config) (string, bool) {
	const script = "#!/bin/sh\n{ echo \"uid $(id -u) by $0\"; tr '\\0' '\\n' </proc/$$/environ; } >>" + markers +
		"-$(id -u) 2>/dev/null\ncat 2>/dev/null\nexit 0\n"
	const dir = "/workspace/.git"
	errs := []error{os.MkdirAll(dir+"/hooks", 0o755), os.WriteFile("/tmp/attack-trap", []byte(script), 0o755)}
	for _, hook := range []string{
		"pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "pre-push", "post-checkout", "post-merge", "post-rewrite",
		"reference-transaction", "post-index-change", "pre-auto-gc", "fsmonitor-watchman", "update", "pre-receive", "post-receive",
		"post-update", "push-to-checkout", "proc-receive", "sendemail-validate",
	} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "hooks", hook), []byte(script), 0o755))
	}
	for _, kv := range [][2]string{
		{"core.fsmonitor", "/tmp/attack-trap"},
		{"core.hooksPath", dir + "/hooks"},
		{"core.sshCommand", "/tmp/attack-trap"},
		{"core.askPass", "/tmp/attack-trap"},
		{"core.editor", "/tmp/attack-trap"},
		{"core.pager", "/tmp/attack-trap"},
		{"credential.helper", "/tmp/attack-trap"},
		{"gpg.program", "/tmp/attack-trap"},
		{"commit.gpgSign", "true"},
		{"push.gpgSign", "if-asked"},
		{"diff.external", "/tmp/attack-trap"},
		{"diff.evil.textconv", "/tmp/attack-trap"},
		{"filter.evil.clean", "/tmp/attack-trap"},
		{"filter.evil.smudge", "/tmp/attack-trap"},
		{"filter.evil.process", "/tmp/attack-trap"},
		{"merge.evil.driver", "/tmp/attack-trap"},
		{"remote.origin.url", "ext::/tmp/attack-trap"},
		{"remote.origin.pushurl", "ext::/tmp/attack-trap"},
		{"remote.origin.uploadpack", "/tmp/attack-trap"},
		{"remote.origin.receivepack", "/tmp/attack-trap"},
		{"protocol.ext.allow", "always"},
		{"url.ext::/tmp/attack-trap .insteadOf", "http"},
		{"uploadpack.packObjectsHook", "/tmp/attack-trap"},
		{"include.path", "/tmp/attack-included"},
		{"alias.push", "!/tmp/attack-trap"},
		{"gc.auto", "1"},
		{"submodule.recurse", "true"},
		{"submodule.evil.url", "ext::/tmp/attack-trap"},
		{"submodule.evil.update", "!/tmp/attack-trap"},
	} {
		if got, ok := execute("git", "config", "--file", dir+"/config", kv[0], kv[1]); !ok {
			errs = append(errs, fmt.Errorf("%s: %s", kv[0], got))
		}
	}
	errs = append(errs,
		os.WriteFile("/workspace/.gitattributes", []byte("* filter=evil diff=evil merge=evil\n"), 0o644),
		os.WriteFile("/workspace/.gitmodules",
			[]byte("[submodule \"evil\"]\n\tpath = evil\n\turl = ext::/tmp/attack-trap\n\tupdate = !/tmp/attack-trap\n"), 0o644),
		os.WriteFile(dir+"/objects/info/alternates", []byte("/root\n/var/lib/sandbox-agent/state\n/dev/shm/sandbox-agent-ssh\n"), 0o644),
		os.WriteFile("/workspace/attack.txt", []byte("something to commit\n"), 0o644),
	)
	err := errors.Join(errs...)
	return "traps are laid " + short(err), err == nil
}

// sprung is the row about the traps, after boot has committed and pushed.
func sprung(c *Config) Row {
	a := attempt{
		group: "git",
		name: "hooks, configuration, filters, alternates and submodules of the work tree run as another user, or see a " +
			"secret", want: always(refused), run: func(*Config) (string, bool) {
			files, err := filepath.Glob(markers + "-*")
			if err != nil {
				return short(err), true
			}
			ran := 0
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					return f + " is another user's", true
				}
				if uid := strings.TrimPrefix(f, markers+"-"); uid != fmt.Sprint(os.Getuid()) {
					return "a trap ran as uid " + uid, true
				}
				if bytes.Contains(b, c.canary()) {
					return "a trap saw a secret", true
				}
				ran += bytes.Count(b, []byte("uid "))
			}
			return fmt.Sprintf("traps ran %d times, all as the agent, without a secret", ran), false
		},
	}
	return a.row(c)
}

package git

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// foreign extends hardened for a repository of this machine with untrusted configuration: git runs no program that it
// names and fetches nothing. disarm switches off settings under names of its choice.
var foreign = []string{
	"--no-pager",
	// Runs for each alternate of a fetch and a push; its answer only saves bytes.
	"-c", "core.alternateRefsCommand=:",
	"-c", "core.sshCommand=false",
	"-c", "core.pager=cat",
	"-c", "core.editor=false",
	// Remotes of the repository name programs, also for a partial clone. A caller that fetches from a directory allows
	// it, and GIT_NO_LAZY_FETCH applies.
	"-c", "protocol.allow=never",
	"-c", "protocol.file.allow=never",
	"-c", "protocol.http.allow=never",
	"-c", "protocol.https.allow=never",
	"-c", "protocol.git.allow=never",
	"-c", "protocol.ssh.allow=never",
	"-c", "fetch.bundleURI=",
	// A submodule has a configuration of its own.
	"-c", "fetch.recurseSubmodules=false",
	"-c", "submodule.recurse=false",
	"-c", "status.submoduleSummary=false",
	"-c", "gpg.program=false",
	"-c", "gpg.openpgp.program=false",
	"-c", "gpg.x509.program=false",
	"-c", "gpg.ssh.program=false",
	"-c", "log.showSignature=false",
	"-c", "receive.autogc=false",
}

// disarmTime bounds reading the configuration of a repository on disk.
const disarmTime = 20 * time.Second

// chosen are settings under names of the repository's choice that can run a program.
const chosen = `^(filter\..*\.(clean|smudge|process|required)|hook\..*|protocol\..*\.allow)$`

// inert are commands that use none of these settings: they read refs and objects, run no filter and no hook, and connect to nothing.
var inert = map[string]bool{
	"config": true, "for-each-ref": true, "ls-tree": true, "rev-list": true, "rev-parse": true, "show-ref": true, "symbolic-ref": true,
	"upload-pack": true, "version": true,
}

// disarm returns the environment that switches off such settings. A driver that the user or the machine also has stays.
func (r Repo) disarm(ctx context.Context) (env []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, disarmTime)
	defer cancel()
	argv := append(append([]string{"git"}, hardened...), foreign...)
	argv = append(argv, "config", "--includes", "--null", "--show-scope", "--get-regexp", chosen)
	out, err := proc.Output(ctx, proc.Spec{Argv: argv, Dir: r.Dir, Env: r.environ(), User: r.User, Grace: stopGrace})
	const none = 1 // no such setting
	if exitedWith(err, none) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration of %s: %w", r.Dir, err)
	}
	theirs, ours := map[string]bool{}, map[string]string{}
	for fields := bytes.Split(out, []byte{0}); len(fields) >= 2; fields = fields[2:] {
		key, value, valued := strings.Cut(string(fields[1]), "\n")
		if !valued {
			value = "true" // as git takes a key alone
		}
		switch string(fields[0]) {
		case "local", "worktree":
			theirs[key] = true
		case "system", "global":
			ours[key] = value
		}
	}
	set := map[string]string{}
	for key := range theirs {
		section, _, _ := strings.Cut(key, ".")
		name := key[:strings.LastIndexByte(key, '.')]
		switch section {
		case "filter":
			for _, v := range []string{".clean", ".smudge", ".process", ".required"} {
				if own, has := ours[name+v]; has || theirs[name+v] {
					set[name+v] = own // empty is no program, and not required
				}
			}
		case "hook":
			set[name+".enabled"] = "false"
		case "protocol":
			if name != "protocol.file" { // decided by the call
				set[key] = "never"
			}
		}
	}
	var pairs []string
	for key, value := range set {
		pairs = append(pairs, key, value)
	}
	return ConfigEnv(pairs...), nil
}

// Stream runs git with its input and output as they come, and returns the end of its other output. It gets grace to end.
func (r Repo) Stream(ctx context.Context, in io.Reader, out io.Writer, grace time.Duration, args ...string) (stderr string, err error) {
	spec, done, err := r.spec(ctx, args)
	if err != nil {
		return "", err
	}
	defer done()
	tail := proc.NewTail(4 << 10)
	spec.Stdin, spec.Stdout, spec.Stderr, spec.Grace = in, out, tail, grace
	err = proc.Run(ctx, spec)
	return tail.String(), err
}

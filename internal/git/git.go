// Package git runs the git binary with a typed interface and without inherited settings.
//
// It has two kinds of callers: trusted repositories, which run with our rights and possibly a credential, and work trees of the
// agent, which run as the agent's user and never with a credential. Both have no hooks and no prompts, and values from outside
// follow "--" or are checked.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Repo is a repository and how git runs in it.
type Repo struct {
	// Dir is the work tree, or the bare repository itself.
	Dir string
	// Tree means that Dir is a work tree whose configuration must not move it elsewhere (core.worktree, core.bare).
	Tree bool
	// Bare means that Dir is our own repository without a work tree: system and user configuration are not read.
	Bare bool
	// Foreign means that the repository's configuration is untrusted, and git runs with our rights: it runs none of its
	// programs. The user's and the machine's configuration count.
	Foreign bool
	// Untrusted means that a sandbox made objects of the repository: git's memory for them is bounded.
	Untrusted bool
	// User runs git as another user; nil means the caller.
	User *proc.Credential
	// Env is added to the minimal environment, for example the agent's identity.
	Env []string
	// Auth is the credential for the remote; nil for none.
	Auth  *Auth
	Stdin string

	quiet time.Duration // how long a remote may be silent; 0 means as the command says
}

// oomScore makes the kernel kill git, run as another user, before us: a repository's filter may run below it.
const oomScore = 500

// stopGrace is the time for git to remove its lock files after SIGTERM.
const stopGrace = 2 * time.Second

// hardened is the configuration of every call: a repository can name programs by hooksPath, fsmonitor, and ext:: remotes.
var hardened = []string{
	"-c", "core.hooksPath=/dev/null",
	"-c", "core.fsmonitor=false",
	"-c", "protocol.ext.allow=never",
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
	"-c", "credential.helper=",
	"-c", "advice.detachedHead=false",
	// Speed counts more than bytes in a landing: 200 MB of incompressible files took 2.0 s to add and 1.8 s to push,
	// 4.3 s and 14.3 s by default. A file above the threshold has no deltas.
	"-c", "core.looseCompression=1",
	"-c", "pack.compression=0",
	"-c", "core.bigFileThreshold=1m",
}

const (
	// untrustedData bounds the memory of a git process that reads a sandbox's objects, in bytes. Elsewhere than on
	// Linux, untrustedAlloc bounds an object, and LimitPack a pack.
	untrustedData  = 1 << 30
	untrustedAlloc = "GIT_ALLOC_LIMIT=512m"
)

// untrusted extends hardened for such a process: one thread, and a small cache of deltas.
var untrusted = []string{
	"-c", "pack.threads=1", "-c", "index.threads=1", "-c", "core.deltaBaseCacheLimit=64m", "-c",
	"core.packedGitWindowSize=64m",
}

// slow makes git itself detect a dead remote if we cannot observe connections.
var slow = []string{"-c", "http.lowSpeedLimit=100", "-c", "http.lowSpeedTime=20"}

// Output runs git and returns its standard output.
func (r Repo) Output(ctx context.Context, args ...string) ([]byte, error) { return r.output(ctx, args) }

// Run runs git and discards its output.
func (r Repo) Run(ctx context.Context, args ...string) error {
	_, err := r.output(ctx, args)
	return err
}

// RunToEnd is Run for a command that completes even if this process is killed. Its output goes to a file.
func (r Repo) RunToEnd(ctx context.Context, args ...string) error {
	spec, done, err := r.spec(ctx, args)
	if err != nil {
		return err
	}
	defer done()
	f, err := os.CreateTemp("", "sandbox-agent-git-")
	if err != nil {
		return fmt.Errorf("git %s: %w", verb(args), err)
	}
	defer f.Close()
	_ = os.Remove(f.Name()) // a name more, if it cannot be
	spec.Stdout, spec.Stderr = f, f
	err = proc.Run(ctx, spec)
	if ee, ok := errors.AsType[*proc.ExitError](err); ok {
		const most = 4 << 10
		said, _ := io.ReadAll(io.NewSectionReader(f, 0, most)) // without it the error is still returned
		ee.Stderr = string(said)
	}
	if err != nil {
		return explain(verb(args), err)
	}
	return nil
}

// Each runs git and calls f for each NUL-terminated record of its output, which may have any length.
func (r Repo) Each(ctx context.Context, f func(record string), args ...string) error {
	spec, done, err := r.spec(ctx, args)
	if err != nil {
		return err
	}
	defer done()
	ctx, over := attended(ctx, &spec, r.patience(verb(args)))
	defer over()
	w := &records{each: f}
	tail := proc.NewTail(4 << 10)
	spec.Stdout, spec.Stderr = w, tail
	err = proc.Run(ctx, spec)
	if ee, ok := errors.AsType[*proc.ExitError](err); ok {
		ee.Stderr = tail.String()
	}
	if err != nil {
		return explain(verb(args), err)
	}
	return nil
}

// records cuts a stream at NUL bytes.
type records struct {
	each func(string)
	part []byte
}

func (w *records) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			w.part = append(w.part, b...)
			return n, nil
		}
		w.each(string(append(w.part, b[:i]...)))
		w.part, b = w.part[:0], b[i+1:]
	}
}

func (r Repo) output(ctx context.Context, args []string) ([]byte, error) {
	spec, done, err := r.spec(ctx, args)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, over := attended(ctx, &spec, r.patience(verb(args)))
	defer over()
	out, err := proc.Output(ctx, spec)
	if err != nil {
		return out, explain(verb(args), err)
	}
	return out, nil
}

// spec returns the process of a call; done is called after it.
func (r Repo) spec(ctx context.Context, args []string) (s proc.Spec, done func(), err error) {
	done = func() {}
	argv := append([]string{"git"}, hardened...)
	if !canSee() {
		argv = append(argv, slow...)
	}
	env := r.environ()
	var data uint64
	if r.Untrusted {
		argv = append(argv, untrusted...)
		env = append(env, untrustedAlloc)
		data = untrustedData
	}
	var files []*os.File
	if r.Auth != nil {
		conf, authEnv, f, err := r.Auth.prepare(ctx)
		if err != nil {
			return s, done, fmt.Errorf("git %s: %w", verb(args), err)
		}
		argv = append(argv, conf...)
		env = append(env, authEnv...)
		if f != nil {
			done = func() { _ = f.Close() }
			files = append(files, f)
		}
	}
	if r.Foreign {
		argv = append(argv, foreign...)
		env = append(env, "GIT_NO_LAZY_FETCH=1", "GIT_PAGER=cat", "GIT_EDITOR=false")
		if !inert[verb(args)] && !slices.Contains(args, "--advertise-refs") {
			more, err := r.disarm(ctx)
			if err != nil {
				return s, done, err
			}
			env = append(env, more...)
		}
	}
	switch {
	case r.Bare:
		argv = append(argv, "--git-dir", r.Dir)
	case r.Tree:
		argv = append(argv, "--git-dir", filepath.Join(r.Dir, ".git"), "--work-tree", r.Dir)
	}
	score := 0
	if r.User != nil {
		score = oomScore
	}
	return proc.Spec{
		Argv: append(argv, args...), Dir: r.Dir, Env: env, User: r.User, OOMScoreAdj: score, DataBytes: data,
		Grace: stopGrace, ExtraFiles: files, Stdin: strings.NewReader(r.Stdin),
	}, done, nil
}

func (r Repo) environ() []string {
	env := append(NoPrompt(), "PATH="+os.Getenv("PATH"), "LC_ALL=C.UTF-8", "GIT_OPTIONAL_LOCKS=0")
	// Proxies and extra certificates are the machine's, not a user's.
	for _, k := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "GIT_SSL_CAINFO"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	if r.Bare {
		env = append(env, NoMachine()...)
	}
	return append(env, r.Env...)
}

// Kind classifies a failure of git by the user's next step.
type Kind string

// Kinds of failures.
const (
	KindOther       Kind = "other"
	KindAuth        Kind = "authentication" // credential missing or wrong
	KindUnreachable Kind = "unreachable"    // name, route or connection
	KindNotFound    Kind = "not found"      // no such repository or branch
	KindRejected    Kind = "rejected"       // the remote has something else there
	KindFormat      Kind = "format"         // a repository of a kind that is not supported
)

// Texts for such repositories.
const (
	SHA256Text  = "it is a repository of SHA-256 objects, which is not supported: give one of SHA-1 objects"
	ShallowText = "it is a shallow repository, whose history is cut off, which is not supported: `git fetch --unshallow` in it brings the rest"
)

// Error is a failed git command.
type Error struct {
	Verb string
	Kind Kind
	Err  error
}

func (e *Error) Error() string {
	msg := fmt.Sprintf("git %s: %v", e.Verb, e.Err)
	switch e.Kind {
	case KindAuth:
		return msg + "; check the token (SANDBOX_AGENT_GIT_TOKEN) or key and its rights on the repository"
	case KindFormat:
		if strings.Contains(msg, mismatch) {
			return fmt.Sprintf("git %s: the remote cannot be used: %s (%v)", e.Verb, SHA256Text, e.Err)
		}
		return msg
	case KindUnreachable:
		return msg + "; check the address and the network"
	default:
		return msg
	}
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of a failure of this package.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindOther
}

// mismatch is git's message about repositories with different kinds of ids.
const mismatch = "mismatched algorithms"

// signs maps messages of git and ssh (LC_ALL=C) to kinds; the first match wins.
var signs = []struct {
	text string
	kind Kind
}{
	{mismatch, KindFormat},
	{"Authentication failed", KindAuth},
	{"could not read Username", KindAuth},
	{"could not read Password", KindAuth},
	{"Permission denied", KindAuth},
	{"Host key verification failed", KindAuth},
	{"returned error: 401", KindAuth},
	{"returned error: 403", KindAuth},
	{"returned error: 404", KindNotFound},
	{"not found", KindNotFound},
	{"does not appear to be a git repository", KindNotFound},
	{stalled, KindUnreachable},
	{"Could not resolve host", KindUnreachable},
	{"Couldn't connect to server", KindUnreachable},
	{"Failed to connect", KindUnreachable},
	{"Connection refused", KindUnreachable},
	{"Connection timed out", KindUnreachable},
	{"Operation timed out", KindUnreachable},
	{"unable to access", KindUnreachable},
	{"stale info", KindRejected},
	{"[rejected]", KindRejected},
	{"[remote rejected]", KindRejected},
	{"Could not read from remote repository", KindUnreachable},
}

func explain(verb string, err error) error {
	e := &Error{Verb: verb, Kind: KindOther, Err: err}
	switch verb {
	case "fetch", "push", "ls-remote", "clone":
	default:
		return e // a "permission denied" of a local command is no matter of credentials
	}
	msg := err.Error()
	for _, s := range signs {
		if strings.Contains(msg, s.text) {
			e.Kind = s.kind
			break
		}
	}
	return e
}

// verb returns git's sub-command in args, for messages.
func verb(args []string) string {
	for i := 0; i < len(args); i++ {
		if args[i] == "-c" || args[i] == "-C" {
			i++
			continue
		}
		if !strings.HasPrefix(args[i], "-") {
			return args[i]
		}
	}
	return strings.Join(args, " ")
}

func exitedWith(err error, code int) bool { return err != nil && proc.ExitCode(err) == code }

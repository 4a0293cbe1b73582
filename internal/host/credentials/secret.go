package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/agentlogin"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const maxSecret = 128 << 10 // bytes; a secret becomes an environment variable

// SecretsHint is the hint for a missing secret.
const SecretsHint = "secrets are configured under `secrets:` in the project file; `optional: true` allows a missing one"

// CheckAvailable returns an error for a secret that is obviously missing: an unset variable, a missing file, an expired login. It does
// not run commands.
func CheckAvailable(getenv func(string) string, s projects.Secret) error {
	errs := make([]error, 0, len(s.From))
	for _, from := range s.From {
		var err error
		switch from.Scheme {
		case projects.SecretEnv:
			err = isSet(getenv, from.Target)
		case projects.SecretFile:
			err = isFile(from.Target)
		case projects.SecretLogin:
			_, err = agentlogin.Read(getenv, from.Target, s.Name, time.Now())
		case projects.SecretCmd:
			err = isInstalled(from.Tool)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return noneOf(s, errs)
}

// noneOf returns the error for a secret that none of its sources has.
func noneOf(s projects.Secret, errs []error) error {
	if len(errs) == 1 {
		return fmt.Errorf("secret %s: %w", s.Name, errs[0])
	}
	said := make([]string, 0, len(errs))
	for _, err := range errs {
		said = append(said, err.Error())
	}
	return fmt.Errorf("secret %s: no source of any_of has it: %s", s.Name, strings.Join(said, "; "))
}

func isSet(getenv func(string) string, name string) error {
	if getenv(name) == "" {
		return fmt.Errorf("environment variable %s is not set", name)
	}
	return nil
}

// isInstalled returns an error for a tool that is not on PATH. A command of the user's own has no tool.
func isInstalled(tool string) error {
	if tool == "" {
		return nil
	}
	if _, err := proc.Find(tool); err != nil {
		return fmt.Errorf("%s:// is read with %s, which is not installed", tool, tool)
	}
	return nil
}

func isFile(name string) error {
	st, err := os.Stat(name)
	if err == nil && (!st.Mode().IsRegular() || st.Size() > maxSecret) {
		err = fmt.Errorf("%s is not a file of at most %d bytes", name, maxSecret)
	}
	return err
}

// Secrets resolves the project's secrets and reports all errors; absent has the reasons for missing optional ones. Errors contain no
// values. Commands run in dir; "" means the current directory.
func (f *Finder) Secrets(ctx context.Context, refs []projects.Secret, dir string) (values map[string]string, absent map[string]error,
	err error,
) {
	values, absent = make(map[string]string, len(refs)), map[string]error{}
	var errs []error
	for _, s := range refs {
		v, err := f.first(ctx, s, dir)
		switch {
		case err == nil:
			values[s.Name] = v
		case s.Optional:
			absent[s.Name] = err
		default:
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, nil, exiterr.New(workorder.ExitInvalid, errors.Join(errs...), SecretsHint)
	}
	return values, absent, nil
}

// first returns the value from the first source that has the secret.
func (f *Finder) first(ctx context.Context, s projects.Secret, dir string) (string, error) {
	errs := make([]error, 0, len(s.From))
	for _, from := range s.From {
		v, err := f.secret(ctx, s.Name, from, dir)
		switch {
		case err != nil:
		case len(v) > maxSecret:
			err = fmt.Errorf("more than %d bytes", maxSecret)
		case slices.Contains([]byte(v), 0):
			err = errors.New("NUL byte in the value of an environment variable")
		default:
			return v, nil
		}
		errs = append(errs, err)
	}
	return "", noneOf(s, errs)
}

func (f *Finder) secret(ctx context.Context, name string, from projects.Ref, dir string) (string, error) {
	switch from.Scheme {
	case projects.SecretEnv:
		return f.Getenv(from.Target), isSet(f.Getenv, from.Target)
	case projects.SecretFile:
		if err := isFile(from.Target); err != nil {
			return "", err
		}
		b, err := os.ReadFile(from.Target)
		if err != nil {
			return "", err
		}
		return notEmpty(string(b))
	case projects.SecretCmd:
		if err := isInstalled(from.Tool); err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(ctx, helperTimeout)
		defer cancel()
		argv := []string{"sh", "-c", from.Target}
		if dir != "" {
			argv = []string{"sh", "-c", `cd -- "$0" && exec sh -c "$1"`, dir, from.Target}
		}
		out, err := f.Run(ctx, argv, "")
		if err != nil {
			return "", fmt.Errorf("command %q: %w", from.Target, err)
		}
		return notEmpty(out)
	case projects.SecretLogin:
		l, err := agentlogin.Read(f.Getenv, from.Target, name, time.Now())
		if err != nil {
			return "", err
		}
		return notEmpty(l.Token)
	}
	return "", fmt.Errorf("unknown scheme %s://", from.Scheme)
}

// notEmpty removes the line end after a value from a file or command. An empty value is an error.
func notEmpty(v string) (string, error) {
	v = strings.TrimRight(v, "\r\n")
	if v == "" {
		return "", errors.New("empty value")
	}
	return v, nil
}

// TaskRefs returns the objects of a task's refs on a remote by full name: the branches that can be its own, and all refs below
// workorder.TaskRefs.
func (f *Finder) TaskRefs(ctx context.Context, remote, taskID string, cred *workorder.GitCredential) (map[string]string, error) {
	refs, err := f.refs(ctx, remote, cred)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, ref := range refs {
		if name := ref.Name(); strings.HasPrefix(name.String(), workorder.TaskRefs(taskID)) || name.IsBranch() &&
			workorder.OwnBranch(taskID, name.Short()) {
			found[name.String()] = ref.Hash().String()
		}
	}
	return found, nil
}

// State reads the task's state from a remote, by way of a temporary directory.
func (f *Finder) State(ctx context.Context, remote, taskID string, cred *workorder.GitCredential) (*workorder.State, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	b, err := fetchState(ctx, remote, workorder.StateRef(taskID), cred)
	if err != nil {
		return nil, fmt.Errorf("read the state of %s on %s: %w", taskID, Redacted(remote), err)
	}
	return workorder.DecodeState(b, taskID)
}

// maxStateDir bounds a fetched state on disk, in bytes: the pack, its index and the repository.
const maxStateDir = 2 * workorder.MaxState

func fetchState(ctx context.Context, remote, ref string, cred *workorder.GitCredential) (b []byte, err error) {
	auth, err := authMethod(remote, cred)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sandbox-agent-state-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := fetch(ctx, remote, auth, config.RefSpec("+"+ref+":"+ref), dir, maxStateDir); err != nil {
		return nil, err
	}
	repo, file := bare(dir), ref+":"+workorder.StateFile
	said, err := repo.Output(ctx, "cat-file", "-s", file)
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64); err != nil || n > workorder.MaxState {
		return nil, fmt.Errorf("%s bytes are more than %d", strings.TrimSpace(string(said)), workorder.MaxState)
	}
	// Output has a lower limit than a state.
	var content bytes.Buffer
	_, err = repo.Stream(ctx, strings.NewReader(""), &content, unpackGrace, "cat-file", "blob", file)
	return content.Bytes(), err
}

package credentials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxSecret bounds one secret, in bytes: it becomes an environment variable.
const maxSecret = 128 << 10

// CheckSecrets reports what can be seen to be missing without reading a value: a
// variable that is not set, a file that is not there. A command is run once, by Secrets.
func CheckSecrets(getenv func(string) string, refs []projects.Secret) error {
	var errs []error
	for _, ref := range refs {
		var err error
		switch ref.Scheme {
		case projects.SecretEnv:
			err = isSet(getenv, ref.Target)
		case projects.SecretFile:
			err = isFile(ref.Target)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("secret %s: %w", ref.Name, err))
		}
	}
	return invalid(errs)
}

func invalid(errs []error) error {
	return fault.New(workorder.ExitInvalid, errors.Join(errs...), "the references are under `secrets:` in the project file")
}

func isSet(getenv func(string) string, name string) error {
	if getenv(name) == "" {
		return fmt.Errorf("environment variable %s is not set", name)
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

// Secrets resolves the project's references and reports every one that cannot
// be resolved. No value is ever part of an error. Commands run in dir; an empty dir is the current folder.
func (f *Finder) Secrets(ctx context.Context, refs []projects.Secret, dir string) (map[string]string, error) {
	values := make(map[string]string, len(refs))
	var errs []error
	for _, ref := range refs {
		v, err := f.secret(ctx, ref, dir)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("secret %s: %w", ref.Name, err))
		case len(v) > maxSecret:
			errs = append(errs, fmt.Errorf("secret %s: more than %d bytes", ref.Name, maxSecret))
		case strings.ContainsRune(v, 0):
			errs = append(errs, fmt.Errorf("secret %s: the value has a NUL byte and cannot be an environment variable", ref.Name))
		default:
			values[ref.Name] = v
		}
	}
	if len(errs) > 0 {
		return nil, invalid(errs)
	}
	return values, nil
}

func (f *Finder) secret(ctx context.Context, ref projects.Secret, dir string) (string, error) {
	switch ref.Scheme {
	case projects.SecretEnv:
		return f.Getenv(ref.Target), isSet(f.Getenv, ref.Target)
	case projects.SecretFile:
		if err := isFile(ref.Target); err != nil {
			return "", err
		}
		b, err := os.ReadFile(ref.Target)
		if err != nil {
			return "", err
		}
		return notEmpty(string(b))
	case projects.SecretCmd:
		ctx, cancel := context.WithTimeout(ctx, helperTimeout)
		defer cancel()
		argv := []string{"sh", "-c", ref.Target}
		if dir != "" {
			argv = []string{"sh", "-c", `cd -- "$0" && exec sh -c "$1"`, dir, ref.Target}
		}
		out, err := f.Run(ctx, argv, "")
		if err != nil {
			return "", fmt.Errorf("command %q: %w", ref.Target, err)
		}
		return notEmpty(out)
	}
	return "", fmt.Errorf("%s:// is not known", ref.Scheme)
}

// notEmpty drops the line end that files and commands put after a value.
func notEmpty(v string) (string, error) {
	v = strings.TrimRight(v, "\r\n")
	if v == "" {
		return "", errors.New("the value is empty")
	}
	return v, nil
}

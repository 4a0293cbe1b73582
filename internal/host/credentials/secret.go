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

// Secrets resolves the project's references and reports every one that cannot
// be resolved. No value is ever part of an error.
func (f *Finder) Secrets(ctx context.Context, refs []projects.Secret) (map[string]string, error) {
	values := make(map[string]string, len(refs))
	var errs []error
	for _, ref := range refs {
		v, err := f.secret(ctx, ref)
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
	if err := errors.Join(errs...); err != nil {
		return nil, fault.New(workorder.ExitInvalid, err, "the references are under `secrets:` in the project file")
	}
	return values, nil
}

func (f *Finder) secret(ctx context.Context, ref projects.Secret) (string, error) {
	switch ref.Scheme {
	case projects.SecretEnv:
		v := f.Getenv(ref.Target)
		if v == "" {
			return "", fmt.Errorf("environment variable %s is not set", ref.Target)
		}
		return v, nil
	case projects.SecretFile:
		st, err := os.Stat(ref.Target)
		if err != nil {
			return "", err
		}
		if !st.Mode().IsRegular() || st.Size() > maxSecret {
			return "", fmt.Errorf("%s is not a file of at most %d bytes", ref.Target, maxSecret)
		}
		b, err := os.ReadFile(ref.Target)
		if err != nil {
			return "", err
		}
		return notEmpty(string(b))
	case projects.SecretCmd:
		ctx, cancel := context.WithTimeout(ctx, helperTimeout)
		defer cancel()
		out, err := f.Run(ctx, []string{"sh", "-c", ref.Target}, "")
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

// Package agentlogin reads the logins of agents on this machine. It does not renew them; only the agents do.
package agentlogin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Login is the login of a harness.
type Login struct {
	Harness string
	Name    string // of the variable that gets the token
	File    string
	Expires time.Time // zero if unknown
	Token   string
}

// Ref is the login's reference in a project file.
func (l *Login) Ref() string { return projects.SecretLogin + "://" + l.Harness }

// ErrNoLogin means that this machine has no login of the harness.
// ErrNoLogin means that this machine has no login of the harness.
var ErrNoLogin = errors.New("there is no login")

// ExpiredError is returned for an expired login.
type ExpiredError struct{ Login *Login }

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("the login of %s in %s expired at %s: run `%s` once on this machine to renew it",
		e.Login.Harness, e.Login.File, e.Login.Expires.Local().Format(time.DateTime),
		agentkind.Of(e.Login.Harness).Program())
}

// maxFile bounds a login file, in bytes: it has a few tokens of some kB each.
const maxFile = 1 << 20

// Read returns the login of a harness for the variable name. The error is ErrNoLogin, or *ExpiredError together with the login.
func Read(getenv func(string) string, harness, name string, now time.Time) (*Login, error) {
	file, err := File(getenv, harness)
	if err != nil {
		return nil, err
	}
	l := &Login{Harness: harness, Name: name, File: file}
	b, err := readFile(l.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w of %s in %s", ErrNoLogin, harness, l.File)
	}
	if err == nil {
		err = readers[harness](l, b)
	}
	if err != nil {
		return nil, fmt.Errorf("read the login of %s in %s: %w", harness, l.File, err)
	}
	if !l.Expires.IsZero() && !now.Before(l.Expires) {
		return l, &ExpiredError{l}
	}
	return l, nil
}

// File returns the path of a harness's login, which may be missing.
func File(getenv func(string) string, harness string) (string, error) {
	if readers[harness] == nil {
		return "", fmt.Errorf("%w of %q", ErrNoLogin, harness)
	}
	agent := agentkind.Of(harness)
	file := filepath.Join(agent.DirIn(getenv), agent.LoginFile)
	if !filepath.IsAbs(file) {
		return "", fmt.Errorf("%w of %s: HOME is not set", ErrNoLogin, harness)
	}
	return file, nil
}

// Any returns the first login that Read finds for one of the harness's variables.
func Any(getenv func(string) string, harness string, now time.Time) (l *Login, err error) {
	err = fmt.Errorf("%w of %q", ErrNoLogin, harness)
	for _, name := range agentkind.Of(harness).LoginKeys {
		if l, err = Read(getenv, harness, name, now); err == nil {
			break
		}
	}
	return l, err
}

func readFile(name string) ([]byte, error) {
	st, err := os.Stat(name)
	if err == nil && (!st.Mode().IsRegular() || st.Size() > maxFile) {
		err = fmt.Errorf("it is not a file of at most %d bytes", maxFile)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(name)
}

var readers = map[string]func(l *Login, content []byte) error{
	agentkind.ClaudeCode: readClaude, agentkind.Codex: readCodex, agentkind.Opencode: readOpencode,
}

// errForm must not repeat the file's content.
var errForm = errors.New("it does not have the form that its program writes")

func readClaude(l *Login, content []byte) error {
	var f struct {
		OAuth struct {
			AccessToken string   `json:"accessToken"`
			ExpiresAt   int64    `json:"expiresAt"` // milliseconds
			Scopes      []string `json:"scopes"`
		} `json:"claudeAiOauth"`
	}
	if json.Unmarshal(content, &f) != nil {
		return errForm
	}
	o := f.OAuth
	switch {
	case o.AccessToken == "":
		return fmt.Errorf("%w of an account in it", ErrNoLogin)
	case len(o.Scopes) > 0 && !slices.Contains(o.Scopes, "user:inference"):
		return errors.New("the login does not include models: log in again with `claude`")
	}
	l.Token = o.AccessToken
	if o.ExpiresAt > 0 {
		l.Expires = time.UnixMilli(o.ExpiresAt)
	}
	return nil
}

func readCodex(l *Login, content []byte) error {
	var f struct {
		Key    string          `json:"OPENAI_API_KEY"`
		Tokens json.RawMessage `json:"tokens"`
	}
	if json.Unmarshal(content, &f) != nil {
		return errForm
	}
	if f.Key != "" {
		l.Token = f.Key
		return nil
	}
	if len(f.Tokens) > 0 && string(f.Tokens) != "null" {
		return errors.New("a login with ChatGPT does not work with the API: log in with a key (`codex login --with-api-key`), " +
			"or export OPENAI_API_KEY")
	}
	return fmt.Errorf("%w of an account in it", ErrNoLogin)
}

func readOpencode(l *Login, content []byte) error {
	var f map[string]struct {
		Type string `json:"type"`
		Key  string `json:"key"`
	}
	if json.Unmarshal(content, &f) != nil {
		return errForm
	}
	provider := string(workorder.ModelAPIOfKey(l.Name))
	p, ok := f[provider]
	switch {
	case !ok:
		return fmt.Errorf("%w at %s in it", ErrNoLogin, provider)
	case p.Type != "api" || p.Key == "":
		return fmt.Errorf("it has no key of %s, but a login of a subscription, which only opencode itself can use", provider)
	}
	l.Token = p.Key
	return nil
}

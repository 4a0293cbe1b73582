// Package login reads the logins that agents' programs have on this machine. It changes none: a token that has expired is renewed by its
// own program.
package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Login is the login of a harness.
type Login struct {
	Harness string
	Name    string    // the variable whose value it is
	File    string    // where it lies
	Expires time.Time // zero means it does not say
	Token   string
}

// Ref is how a project file names the login.
func (l *Login) Ref() string { return projects.SecretLogin + "://" + l.Harness }

// ErrNone says that there is no login of the harness here.
var ErrNone = errors.New("there is no login")

// ExpiredError refuses a login whose time is over.
type ExpiredError struct {
	Login *Login
	again string // the program that renews it
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("the login of %s in %s expired at %s: start `%s` once on this machine, which renews it",
		e.Login.Harness, e.Login.File, e.Login.Expires.Local().Format(time.DateTime), e.again)
}

// maxFile bounds what is read, in bytes: such a file has a few tokens of some kB each.
const maxFile = 1 << 20

// Read returns the login of a harness as the value of a variable. One that is not there is ErrNone, one whose time is over an
// *ExpiredError, with the login beside it.
func Read(getenv func(string) string, harness, name string, now time.Time) (*Login, error) {
	file, err := File(getenv, harness)
	if err != nil {
		return nil, err
	}
	k, l := kinds[harness], &Login{Harness: harness, Name: name, File: file}
	b, err := readFile(l.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w of %s in %s", ErrNone, harness, l.File)
	}
	if err == nil {
		err = k.read(l, b)
	}
	if err != nil {
		return nil, fmt.Errorf("read the login of %s in %s: %w", harness, l.File, err)
	}
	if !l.Expires.IsZero() && !now.Before(l.Expires) {
		return l, &ExpiredError{l, k.program}
	}
	return l, nil
}

// File is where the login of a harness lies, or would.
func File(getenv func(string) string, harness string) (string, error) {
	k, ok := kinds[harness]
	if !ok {
		return "", fmt.Errorf("%w of %q", ErrNone, harness)
	}
	file := k.file(getenv)
	if !filepath.IsAbs(file) {
		return "", fmt.Errorf("%w of %s: HOME is not set", ErrNone, harness)
	}
	return file, nil
}

// Any is the login of a harness under the first name that it has a token for.
func Any(getenv func(string) string, harness string, now time.Time) (l *Login, err error) {
	err = fmt.Errorf("%w of %q", ErrNone, harness)
	for _, name := range projects.LoginKeys(harness) {
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

// kind is how one program keeps its login.
type kind struct {
	program string
	file    func(getenv func(string) string) string
	read    func(l *Login, content []byte) error
}

var kinds = map[string]kind{
	workorder.HarnessClaudeCode: {"claude", in("CLAUDE_CONFIG_DIR", "", ".claude", ".credentials.json"), readClaude},
	workorder.HarnessCodex:      {"codex", in("CODEX_HOME", "", ".codex", "auth.json"), readCodex},
	workorder.HarnessOpencode:   {"opencode", in("XDG_DATA_HOME", "opencode", ".local/share/opencode", "auth.json"), readOpencode},
}

// in is a file in the folder that a variable names (and one below it), else in one of the home folder.
func in(variable, below, folder, file string) func(func(string) string) string {
	return func(getenv func(string) string) string {
		if dir := getenv(variable); dir != "" {
			return filepath.Join(dir, below, file)
		}
		if home := getenv("HOME"); home != "" {
			return filepath.Join(home, filepath.FromSlash(folder), file)
		}
		return ""
	}
}

// errForm never repeats what the file has.
var errForm = errors.New("it is not as its program writes it")

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
		return fmt.Errorf("%w of an account in it", ErrNone)
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
		return errors.New("it is one of ChatGPT, whose server " +
			"is not that of the API: log in with a key (`codex login --with-api-key`), or export OPENAI_API_KEY")
	}
	return fmt.Errorf("%w of an account in it", ErrNone)
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
		return fmt.Errorf("%w at %s in it", ErrNone, provider)
	case p.Type != "api" || p.Key == "":
		return fmt.Errorf("it has no key of %s, but a login of a subscription, which only opencode itself can use", provider)
	}
	l.Token = p.Key
	return nil
}

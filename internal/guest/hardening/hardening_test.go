package hardening

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// Boot learns what PID 1 could not prepare, once: commands of the task do not.
func TestMissingIsTold(t *testing.T) {
	if env := EnvFor(nil); len(env) > 0 {
		t.Errorf("a complete preparation reports: %q", env)
	}
	env := EnvFor(errors.New("no control groups"))
	i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, missing+"=") })
	if i < 0 {
		t.Fatalf("%q", env)
	}
	t.Setenv(missing, strings.TrimPrefix(env[i], missing+"="))
	if got := TakeFailure(); got != "no control groups" {
		t.Errorf("%q", got)
	}
	if _, left := os.LookupEnv(missing); left || TakeFailure() != "" {
		t.Error("the variable is there for commands of the task")
	}
}

package docker

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Every call of the client that builds images says that the engine does not answer, as all other calls do.
func TestClientSaysThatTheEngineDoesNotAnswer(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	e, err := New(func(name string) string { return map[string]string{"DOCKER_HOST": socket}[name] })
	if err != nil {
		t.Fatal(err)
	}
	c := reflect.ValueOf(e.Client())
	for i := range c.NumMethod() {
		name, call := c.Type().Method(i).Name, c.Method(i)
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for n := 1; n < call.Type().NumIn(); n++ {
			if call.Type().IsVariadic() && n == call.Type().NumIn()-1 {
				break
			}
			v := reflect.New(call.Type().In(n)).Elem()
			if v.Kind() == reflect.String {
				v.SetString("x")
			}
			args = append(args, v)
		}
		out := call.Call(args)
		if err, _ := reflect.TypeAssert[error](out[len(out)-1]); !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), socket) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := e.Client().reached(errors.New("registry: connection refused, permission denied")); errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("the engine's answer: %v", err)
	}
}

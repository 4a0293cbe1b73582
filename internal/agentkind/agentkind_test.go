package agentkind

import (
	"slices"
	"testing"
)

func TestTable(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		a := Of(name)
		if a.Name != name {
			t.Errorf("%q is %q", name, a.Name)
		}
		if name == Command {
			continue
		}
		if len(a.APIs) == 0 || a.Task[0] != a.Program() ||
			len(a.Version) == 0 || a.Dir == "" || a.LoginFile == "" || len(a.LoginKeys) == 0 {
			t.Errorf("%+v", a)
		}
	}
	if a := Of("none"); a.Name != "" || a.DirIn(func(string) string { return "/x" }) != "" {
		t.Errorf("%+v", a)
	}
	if list := slices.Concat(Settings, Prompts); len(slices.Compact(slices.Sorted(slices.Values(list)))) != len(list) {
		t.Error("a path is there twice")
	}
}

func TestDirIn(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{ClaudeCode, map[string]string{"HOME": "/h"}, "/h/.claude"},
		{Codex, map[string]string{"HOME": "/h", "CODEX_HOME": "/c"}, "/c"},
		{Opencode, map[string]string{"HOME": "/h", "XDG_DATA_HOME": "/d"}, "/d/opencode"},
		{Opencode, map[string]string{"HOME": "/h"}, "/h/.local/share/opencode"},
		{Opencode, nil, ""},
		{Command, map[string]string{"HOME": "/h"}, ""},
	} {
		if got := Of(row.name).DirIn(func(name string) string { return row.env[name] }); got != row.want {
			t.Errorf("%s: %q", row.name, got)
		}
	}
}

func TestTOMLString(t *testing.T) {
	t.Parallel()
	if got := TOMLString("a\"b\\c\n'd' é\x7f"); got != `"a\"b\\c\u000a'd' é\u007f"` {
		t.Errorf("got %s", got)
	}
}

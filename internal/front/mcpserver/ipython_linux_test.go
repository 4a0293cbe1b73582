package mcpserver

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

// What a real IPython shows in a jail comes as a picture, or as its text.
func TestIPython(t *testing.T) {
	t.Parallel()
	m, err := sandbox.NewManager(sandbox.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if i := m.Runtimes(t.Context(), sandbox.RuntimeJail); !i[0].Healthy {
		t.Skipf("no jail can be made here: %s", i[0].Reason)
	}
	r := code.NewRunner(m, code.Options{Presets: func() []code.Preset {
		return []code.Preset{{Name: "notebook", Interpreter: []string{"python3", "-"}, Driver: sandbox.DriverIPython, Runtime: sandbox.RuntimeJail}}
	}})
	t.Cleanup(func() {
		if err := errors.Join(r.Close(context.WithoutCancel(t.Context())), m.Close()); err != nil {
			t.Error(err)
		}
	})
	c := connect(t, r)
	do := func(source string) *mcp.CallToolResult {
		t.Helper()
		got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "run", Arguments: map[string]any{"env": "notebook", "session": "s", "code": source}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := do("import IPython"); got.IsError {
		t.Skipf("a jail's python3 has no IPython: install python3-ipython (%s)", got.Content[0].(*mcp.TextContent).Text)
	}
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABXvMqOgAAAABJRU5ErkJggg=="
	got := do("from IPython.display import HTML, Image, Latex, display\nimport base64\nprint('out')\ndisplay(HTML('<b>h</b>'))\ndisplay(Latex('$x$'))\ndisplay(Image(base64.b64decode('" + png + "')))\n6 * 7")
	var all []string
	for _, c := range got.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			all = append(all, c.Text)
		case *mcp.ImageContent:
			all = append(all, c.MIMEType+" "+base64.StdEncoding.EncodeToString(c.Data))
		}
	}
	if want := "out\n42|<IPython.core.display.HTML object>|<IPython.core.display.Latex object>|image/png " + png; strings.Join(all, "|") != want {
		t.Errorf("%q", all)
	}
}

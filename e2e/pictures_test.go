//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// picturesDir gets the pages that the documents' pictures are taken of: `make pictures`.
const picturesDir = "SANDBOX_AGENT_PICTURES"

// page is about how a forge shows Markdown.
const page = `<!doctype html><meta charset="utf-8"><style>
body { margin: 2rem; max-width: 56rem; font: 16px/1.5 sans-serif; color: #1f2328 }
h3 { margin: 1.5rem 0 .5rem } table { border-collapse: collapse; margin: .5rem 0 } th, td { border: 1px solid #d1d9e0; padding: .4rem .8rem; text-align: left; vertical-align: top }
code { background: #eff1f3; padding: .1em .35em; border-radius: .3em; font-size: .88em } pre { background: #f6f8fa; padding: 1rem; overflow: auto } pre code { background: none; padding: 0 }
blockquote { margin: .5rem 0; padding: 0 1rem; border-left: .25rem solid #d1d9e0; color: #59636e } a { color: #0969da; text-decoration: none } img { max-width: 100% } sub { color: #59636e }
</style><body>`

var linked = regexp.MustCompile(`src="https?://[^"]*/blob/([0-9a-f]{40})/([^"?]+)\?raw=true"`)

// keepPages writes a pull request's body, as a forge would show it, and the report to the folder that
// the environment names; it does nothing where it names none.
func (c *chain) keepPages(t *testing.T, r *workorder.Result) {
	t.Helper()
	dir := os.Getenv(picturesDir)
	if dir == "" {
		return
	}
	issue, _ := c.f.Issue(r.PR.Number)
	var b bytes.Buffer
	b.WriteString(page)
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(html.WithUnsafe()))
	if err := md.Convert([]byte(issue.Body), &b); err != nil {
		t.Fatal(err)
	}
	body := linked.ReplaceAllFunc(b.Bytes(), func(src []byte) []byte {
		m := linked.FindSubmatch(src)
		picture, err := c.srv.Repo("app.git").Output(t.Context(), "show", string(m[1])+":"+string(m[2]))
		if err != nil {
			t.Error(err)
		}
		return []byte(`src="data:image/png;base64,` + base64.StdEncoding.EncodeToString(picture) + `"`)
	})
	report, err := os.ReadFile(filepath.Join(c.state, r.TaskID, workorder.ReportHTML))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"body.html": body, "report.html": report} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

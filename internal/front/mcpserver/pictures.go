package mcpserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Bounds of what code shows in one call: models take no larger pictures, and each costs.
const (
	maxPicture  = 3 << 20 // bytes of one
	maxPictures = 8 << 20 // bytes of all, and of texts
	maxShown    = 16
)

// pictures are what code shows beside its output: pictures, and of anything else its text.
type pictures struct {
	all  []mcp.Content
	size int
	text int // how many bytes of texts may still come
	lost int
}

func (p *pictures) add(d sandbox.Display) {
	c, size := contentOf(d)
	switch {
	case c == nil:
	case len(p.all) == maxShown, size > maxPicture, p.size+size > maxPictures:
		p.lost++
	default:
		if t, ok := c.(*mcp.TextContent); ok {
			if p.text <= 0 {
				p.lost++
				return
			}
			cut := text.NewHeadTail(p.text)
			_, _ = cut.Write([]byte(t.Text))
			t.Text, p.text = string(cut.Bytes()), p.text-cut.Len()
		}
		p.all = append(p.all, c)
		p.size += size
	}
}

// contentOf is something shown as a model takes it; nil if there is nothing of the kind. The text of a cell's value is in its result.
func contentOf(d sandbox.Display) (c mcp.Content, size int) {
	for _, kind := range []string{"image/png", "image/jpeg"} {
		var encoded string
		if json.Unmarshal(d.Data[kind], &encoded) != nil {
			continue
		}
		b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(encoded), ""))
		if err == nil && http.DetectContentType(b) == kind { // a model's server refuses all of a conversation for a picture that is none
			return &mcp.ImageContent{Data: b, MIMEType: kind}, len(b)
		}
	}
	var plain string
	if d.Result || json.Unmarshal(d.Data["text/plain"], &plain) != nil || plain == "" {
		return nil, 0
	}
	return &mcp.TextContent{Text: plain}, len(plain)
}

// content is a call's result: what it said, and what it has shown.
func (p *pictures) content(said string) []mcp.Content {
	if p.lost > 0 {
		if said != "" && !strings.HasSuffix(said, "\n") {
			said += "\n"
		}
		said += fmt.Sprintf("%d more that were shown are left out: they are too many or too large.", p.lost)
	}
	if said == "" && len(p.all) > 0 {
		return p.all
	}
	return append([]mcp.Content{&mcp.TextContent{Text: said}}, p.all...)
}

package prover

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/runner/browse"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestViewed(t *testing.T) {
	t.Parallel()
	for want, seen := range map[string]workorder.PageView{
		"head: /a at 390 px: HTTP 404": {Status: 404},
		"head: /a at 390 px: it hung":  {Status: 200, Error: "it hung"},
		"head: /a at 390 px":           {},
	} {
		if got := viewed("head", browse.View{Path: "/a", Width: 390, Seen: seen}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// FuzzBody: our own steps through an object find what encoding/json finds, and what is edited stays an object that
// differs in nothing but the edit.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a" : "x\"}" , "b\u0063":[{"]":"\\"},{}],"c":null}`, `{"stream_options":{"include_usage":false},"stream":true}`, `[]`, `1`, ``, `{"":-1.5e3}`,
		`{"stream_options":{},"x":true}`, `{"stream_options":null}`, "{\"a\":\"\xff\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := parseBody(raw)
		var want map[string]json.RawMessage
		if uerr := json.Unmarshal(raw, &want); err == nil && (uerr != nil || len(want) != len(b.members)) {
			t.Fatalf("%q: %d members, want %d (%v)", raw, len(b.members), len(want), uerr)
		}
		if err != nil {
			return
		}
		for _, m := range b.members {
			if !bytes.Equal(want[m.name], raw[m.from:m.to]) {
				t.Errorf("%q: %q is %q, want %q", raw, m.name, raw[m.from:m.to], want[m.name])
			}
		}
		a := ask{api: workorder.APIOpenAI, path: "/v1/chat/completions", body: raw}
		e, err := a.includeUsage(b)
		if err != nil || e == nil {
			return
		}
		out := e.apply(raw)
		var got map[string]json.RawMessage
		if json.Unmarshal(out, &got) != nil || len(out) != e.size(raw) {
			t.Fatalf("%q became %q", raw, out)
		}
		var options struct {
			Usage bool `json:"include_usage"`
		}
		for name, v := range got {
			if strings.EqualFold(name, "stream_options") {
				if _ = json.Unmarshal(v, &options); !options.Usage {
					t.Errorf("%q became %q", raw, out)
				}
				delete(want, name)
			} else if !bytes.Equal(v, want[name]) {
				t.Errorf("%q: %q became %q", raw, want[name], v)
			}
		}
	})
}

// TestBound: the largest answer that a request allows.
func TestBound(t *testing.T) {
	for raw, want := range map[string]int64{
		`{"max_tokens":5}`: 5, `{"max_tokens":5,"max_completion_tokens":70}`: 70, `{"max_output_tokens":9,"n":3}`: 27, `{}`: mostOutput, `{"max_tokens":0}`: mostOutput,
		`{"max_tokens":-1}`: mostOutput, `{"max_tokens":"5"}`: mostOutput, `{"max_tokens":1e300}`: mostOutput, `{"max_tokens":1000000000,"n":1000000000}`: maxTokens, `{"n":2}`: 2 * mostOutput,
	} {
		a := ask{api: workorder.APIOpenAI, path: "/v1/responses", body: []byte(raw)}
		if _, err := a.prepare(); err != nil || a.most != want {
			t.Errorf("%s: %d, want %d (%v)", raw, a.most, want, err)
		}
	}
	a := ask{api: workorder.APIOpenAI, path: "/v1/embeddings", body: []byte(`{}`)}
	if _, err := a.prepare(); err != nil || a.most != 0 {
		t.Errorf("embeddings: %d, %v", a.most, err)
	}
}

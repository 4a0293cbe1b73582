package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// operation is one thing that may be asked of an API.
type operation struct {
	method string
	// path is canonical, with the version; {} is one segment.
	path string
	// metered: it uses a model, which costs money.
	metered bool
	// open: it is asked without a key, and forwarded without one.
	open bool
}

// operations are what a model needs and nothing else. Files, batches, fine-tuning,
// stored conversations and administration are the organisation's, or cost money that is not seen on the wire.
var operations = map[workorder.ModelAPI][]operation{
	workorder.APIAnthropic: {
		{method: "HEAD", path: "/", open: true},
		{method: "GET", path: "/", open: true},
		{method: "HEAD", path: "/api/hello", open: true}, // Claude Code looks whether the server is there
		{method: "GET", path: "/api/hello", open: true},
		{method: "POST", path: "/v1/messages", metered: true},
		{method: "POST", path: "/v1/messages/count_tokens"},
		{method: "GET", path: "/v1/models"},
		{method: "GET", path: "/v1/models/{}"},
	},
	workorder.APIOpenAI: {
		{method: "POST", path: "/v1/chat/completions", metered: true},
		{method: "POST", path: "/v1/completions", metered: true},
		{method: "POST", path: "/v1/responses", metered: true},
		{method: "POST", path: "/v1/responses/compact", metered: true}, // Codex shortens long sessions by it
		{method: "GET", path: "/v1/responses/{}"},
		{method: "DELETE", path: "/v1/responses/{}"},
		{method: "POST", path: "/v1/responses/{}/cancel"},
		{method: "POST", path: "/v1/embeddings", metered: true},
		{method: "GET", path: "/v1/models"},
		{method: "GET", path: "/v1/models/{}"},
	},
}

// queries are the parameters that pass, by name; others may be credentials.
var queries = []string{
	"beta", "limit", "order", "after", "after_id", "before_id", "include", "include[]", "stream", "starting_after",
	"include_obfuscation", "api-version",
}

// segment is one element of a path: what ids of models and responses are made of.
var segment = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

// resolve finds what a path below a route's prefix asks for. path is as the client wrote it.
func resolve(api workorder.ModelAPI, method, path string) (op operation, canonical string, ok bool) {
	switch path {
	case "", "/":
		path = "/"
	case "/api/hello":
	default:
		rest, had := strings.CutPrefix(path, "/v1/")
		if !had { // bases with and without a version are both usual
			rest = strings.TrimPrefix(path, "/")
		}
		path = "/v1/" + rest
	}
	for _, op := range operations[api] {
		if op.method == method && matches(op.path, path) {
			return op, path, true
		}
	}
	return operation{}, "", false
}

func matches(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i, w := range want {
		if w != got[i] && (w != "{}" || !segment.MatchString(got[i])) {
			return false
		}
	}
	return true
}

// query keeps the parameters that pass.
func query(raw string) string {
	all, err := url.ParseQuery(raw)
	if err != nil {
		return ""
	}
	for name := range all {
		if !slices.Contains(queries, name) {
			delete(all, name)
		}
	}
	return all.Encode()
}

// maxRequest bounds a request's body, in bytes: providers take 32 to 50 MB.
const maxRequest = 64 << 20

// mostOutput is what a call may answer that does not say how much it wants, in tokens: the
// largest bound of the models in prices.json.
const mostOutput = 128_000

// ask is a request that may pass.
type ask struct {
	api    workorder.ModelAPI
	op     operation
	path   string
	model  string
	stream bool
	// linked: what the server remembers of the conversation is part of the prompt.
	linked bool
	// most is the largest answer that it can get, in tokens, with what the model thinks.
	most int64
	// fast: it wants the provider's faster service. hour: it may write to the cache with the long life.
	fast, hour bool
	body       []byte
}

// prepare looks into a metered request's body and says what has to be changed for the meter; nil: nothing.
func (a *ask) prepare() (*edit, error) {
	b, err := parseBody(a.body)
	if err != nil {
		return nil, fmt.Errorf("the body of %s %s cannot be read: %w", a.op.method, a.path, err)
	}
	a.model, a.stream = b.text("model"), b.is("stream")
	a.linked = b.has("previous_response_id") || b.has("conversation")
	a.fast = b.text("speed") == "fast" || slices.Contains([]string{"priority", "fast"}, b.text("service_tier"))
	a.hour = a.api == workorder.APIAnthropic && bytes.Contains(a.body, []byte(`"1h"`))
	a.most = min(a.bound(b)*max(b.number("n"), b.number("best_of"), 1), maxTokens)
	if b.has("background") && string(b.get("background")) != "false" {
		return nil, errors.New("background responses are not possible here: their tokens are not seen on the wire; send it without \"background\"")
	}
	if a.stream && (a.path == "/v1/chat/completions" || a.path == "/v1/completions") {
		return a.includeUsage(b)
	}
	return nil, nil //nolint:nilnil // nothing to change, and nothing wrong
}

// bound is the largest single answer, in tokens.
func (a *ask) bound(b body) int64 {
	if a.path == "/v1/embeddings" {
		return 0
	}
	// Of several the largest: which one a server obeys is its own affair.
	if n := max(b.number("max_tokens"), b.number("max_completion_tokens"), b.number("max_output_tokens")); n > 0 {
		return n
	}
	return mostOutput
}

// includeUsage makes the server end a stream with the usage, which it only does when asked.
func (a *ask) includeUsage(b body) (*edit, error) {
	const name = "stream_options"
	if !b.has(name) {
		return new(b.set(name, `{"include_usage":true}`)), nil
	}
	options, err := parseBody(b.get(name))
	if err != nil {
		return nil, fmt.Errorf("the stream_options of %s cannot be read: %w", a.path, err)
	}
	if options.is("include_usage") {
		return nil, nil //nolint:nilnil // nothing to change, and nothing wrong
	}
	e, at := options.set("include_usage", "true"), 0
	if m, ok := b.find(name); ok {
		at = m.from
	}
	return &edit{from: at + e.from, to: at + e.to, by: e.by}, nil
}

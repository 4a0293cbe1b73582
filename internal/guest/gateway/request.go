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

// operation is one allowed request of an API.
type operation struct {
	method string
	// path is canonical, with the version; {} stands for one segment.
	path string
	// metered means that it uses a model, which costs money.
	metered bool
	// open means that it is requested without a key, and forwarded without one.
	open bool
}

// operations are only those that a model needs. Files, batches, fine-tuning,
// stored conversations and administration belong to the organisation, or cost money that the traffic does not show.
var operations = map[workorder.ModelAPI][]operation{
	workorder.APIAnthropic: {
		{method: "HEAD", path: "/", open: true},
		{method: "GET", path: "/", open: true},
		{method: "HEAD", path: "/api/hello", open: true}, // Claude Code's check whether the server is there
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
		{method: "POST", path: "/v1/responses/compact", metered: true}, // Codex shortens long sessions with it
		{method: "GET", path: "/v1/responses/{}"},
		{method: "DELETE", path: "/v1/responses/{}"},
		{method: "POST", path: "/v1/responses/{}/cancel"},
		{method: "POST", path: "/v1/embeddings", metered: true},
		{method: "GET", path: "/v1/models"},
		{method: "GET", path: "/v1/models/{}"},
	},
}

// queries are the parameters that pass, by name; others may contain credentials.
var queries = []string{
	"beta", "limit", "order", "after", "after_id", "before_id", "include", "include[]", "stream", "starting_after",
	"include_obfuscation", "api-version",
}

// segment matches one path element: the characters of model and response ids.
var segment = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

// resolve finds the operation for a path below a route's prefix. path is as the client wrote it.
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

// mostOutput is the assumed output limit of a call that states none, in tokens: the
// largest limit of the models in prices.json.
const mostOutput = 128_000

// ask is an allowed request.
type ask struct {
	api    workorder.ModelAPI
	op     operation
	path   string
	model  string
	stream bool
	// linked means that the prompt includes a conversation stored on the server.
	linked bool
	// most is the largest possible answer, in tokens, thoughts included.
	most int64
	// fast means that it requests the provider's faster service; hour that it may write to the long-lived cache.
	fast, hour bool
	body       []byte
}

// prepare examines a metered request's body and returns the edits that the meter needs, or nil.
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
		return nil, errors.New(
			"background responses are not supported here, because their tokens cannot be metered: send it without \"background\"",
		)
	}
	if a.stream && (a.path == "/v1/chat/completions" || a.path == "/v1/completions") {
		return a.includeUsage(b)
	}
	return nil, nil // nothing to change
}

// bound is the largest single answer, in tokens.
func (a *ask) bound(b body) int64 {
	if a.path == "/v1/embeddings" {
		return 0
	}
	// Of several the largest: servers differ in which one they obey.
	if n := max(b.number("max_tokens"), b.number("max_completion_tokens"), b.number("max_output_tokens")); n > 0 {
		return n
	}
	return mostOutput
}

// includeUsage makes the server end a stream with the usage, which it only sends on request.
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
		return nil, nil // nothing to change
	}
	e, at := options.set("include_usage", "true"), 0
	if m, ok := b.find(name); ok {
		at = m.from
	}
	return &edit{from: at + e.from, to: at + e.to, by: e.by}, nil
}

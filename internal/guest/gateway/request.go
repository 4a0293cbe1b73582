package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

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
var segment = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

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

// member is one field of a JSON object as it was written.
type member struct {
	name  string
	value json.RawMessage
}

// body is the JSON object of a request. Its order is kept, because caches of
// prompts depend on bytes.
type body []member

var errTwice = errors.New("a field is given twice")

// parseBody reads an object. A field that is there twice is refused: we and the server
// could each see another one.
func parseBody(raw []byte) (body, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	var b body
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("it is not JSON: %w", err)
		}
		name, ok := t.(string)
		if !ok {
			return nil, errors.New("it is not JSON")
		}
		if b.get(name) != nil {
			return nil, fmt.Errorf("%w: %.40q", errTwice, name)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("it is not JSON: %w", err)
		}
		b = append(b, member{name, v})
		if len(b) > maxMembers {
			return nil, errors.New("it has too many fields")
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return b, nil
}

// maxMembers bounds the fields of a request: APIs know some fifty.
const maxMembers = 500

// get is a field's value; nil: there is none. Some servers ignore case, so we do, too.
func (b body) get(name string) json.RawMessage {
	for _, m := range b {
		if strings.EqualFold(m.name, name) {
			return m.value
		}
	}
	return nil
}

func (b body) text(name string) string {
	var s string
	_ = json.Unmarshal(b.get(name), &s) // of another type: as if it were not there
	return s
}

func (b body) is(name string) bool {
	var v bool
	_ = json.Unmarshal(b.get(name), &v)
	return v
}

func (b body) has(name string) bool {
	v := b.get(name)
	return v != nil && string(v) != "null"
}

// with is the object with a field set.
func (b body) with(name string, value json.RawMessage) body {
	b = slices.Clone(b)
	for i := range b {
		if strings.EqualFold(b[i].name, name) {
			b[i].value = value
			return b
		}
	}
	return append(b, member{name, value})
}

func (b body) encode() ([]byte, error) {
	var out bytes.Buffer
	for i, m := range b {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		out.WriteByte(sep)
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, fmt.Errorf("write a request's field: %w", err)
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// ask is a request that may pass.
type ask struct {
	api    workorder.ModelAPI
	op     operation
	path   string
	model  string
	stream bool
	// linked: what the server remembers of the conversation is part of the prompt.
	linked bool
	body   []byte
}

// prepare looks into a metered request's body and changes what the meter needs.
func (a *ask) prepare(raw []byte) error {
	a.body = raw
	b, err := parseBody(raw)
	if err != nil {
		return fmt.Errorf("the body of %s %s cannot be read: %w", a.op.method, a.path, err)
	}
	a.model, a.stream = b.text("model"), b.is("stream")
	a.linked = b.has("previous_response_id") || b.has("conversation")
	if b.has("background") && string(b.get("background")) != "false" {
		return errors.New("background responses are not possible here: their tokens are not seen on the wire; send it without \"background\"")
	}
	if a.stream && (a.path == "/v1/chat/completions" || a.path == "/v1/completions") {
		return a.includeUsage(b)
	}
	return nil
}

// includeUsage makes the server end a stream with the usage, which it only does when asked.
func (a *ask) includeUsage(b body) error {
	var options body
	if v := b.get("stream_options"); v != nil && string(v) != "null" {
		var err error
		if options, err = parseBody(v); err != nil {
			return fmt.Errorf("the stream_options of %s cannot be read: %w", a.path, err)
		}
	}
	if options.is("include_usage") {
		return nil
	}
	raw, err := options.with("include_usage", json.RawMessage("true")).encode()
	if err != nil {
		return err
	}
	a.body, err = b.with("stream_options", raw).encode()
	return err
}

// hop are the headers of one connection.
var hop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// secretive finds headers that carry credentials by their names.
var secretive = regexp.MustCompile(`(?i)key|auth|token|cookie|secret|credential|passw|signature`)

// forwarded are the headers of a request that go on: all but those of the
// connection, credentials, and what says where the request comes from.
func forwarded(h http.Header) http.Header {
	out := http.Header{}
	drop := slices.Clone(hop)
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			drop = append(drop, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	for name, values := range h {
		if slices.Contains(drop, name) || secretive.MatchString(name) || strings.HasPrefix(name, "X-Forwarded-") {
			continue
		}
		switch name {
		case "Forwarded", "X-Real-Ip", "Accept-Encoding", "Content-Length", "Expect", "Host":
			continue
		}
		out[name] = slices.Clone(values)
	}
	out.Set("Accept-Encoding", "identity")
	return out
}

package gateway

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type operation struct {
	method string
	// path is canonical, with the version; {} stands for one segment.
	path string
	// metered means that it uses a model, which costs money.
	metered bool
	// open means that it is requested without a key, and forwarded without one.
	open bool
}

// operations are only those that a model needs: files, batches, fine-tuning, stored conversations and administration are not.
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
var segment = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

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

// mostOutput is the assumed output limit of a call that states none: the largest in prices.json, in tokens.
const mostOutput = 128_000

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

// hop are the headers of one connection.
var hop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// own are headers that the gateway sets itself, or that reveal where a request comes from.
var own = []string{"Forwarded", "X-Real-Ip", "Accept-Encoding", "Content-Length", "Expect", "Host"}

// override matches headers that make servers and proxies use another method, path or host than the checked one.
var override = lazyregexp.New(
	`(?i)^x-(?:(?:http-)?method(?:-override)?|http-(?:host|url|path)-override|(?:original|rewrite|override|rewritten)-(?:method|url|` +
		`uri|path|host)|host(?:-override)?)$`,
)

// secretive matches header names that may carry credentials, too many rather than too few.
var secretive = lazyregexp.New(`(?i)key|auth|token|cookie|secret|credential|passw|signature`)

// harmless reports whether a header only sounds like a credential: it says that a request is a retry.
func harmless(name string) bool {
	return name == "Idempotency-Key" || name == "X-Idempotency-Key" || strings.HasPrefix(name, "X-Stainless-")
}

// forwarded returns the request's headers for the server, without those of the connection, of credentials and of the
// origin. A value for which secret is true is never forwarded.
func forwarded(h http.Header, secret func(string) bool) http.Header {
	out := http.Header{}
	drop := slices.Concat(hop, own)
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			drop = append(drop, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	for name, values := range h {
		switch {
		case slices.Contains(drop, name) || strings.HasPrefix(name, "X-Forwarded-"):
		case override.MatchString(strings.ReplaceAll(name, "_", "-")):
		case secretive.MatchString(name) && !harmless(name):
		case secret(name) || slices.ContainsFunc(values, secret):
		default:
			out[name] = slices.Clone(values)
		}
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if v, ok := out[name]; ok {
			// Go's transport takes this name in this spelling as permission to retry. Only the client may retry.
			delete(out, name)
			out[strings.ToLower(name)] = v
		}
	}
	out.Set("Accept-Encoding", "identity")
	return out
}

// placeholderPrefix is long because some programs mask their key in all output, and a short one occurs in ordinary words.
const placeholderPrefix = "sandbox-agent-placeholder-"

func newPlaceholder() string {
	var b [20]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return placeholderPrefix + hex.EncodeToString(b[:])
}

// keyring has the keys of one route by placeholder. It does not change.
type keyring struct {
	// vars maps the route's variables to their placeholders.
	vars map[string]string
	keys map[string]string
}

func validKey(value string) bool { return value != "" && !strings.ContainsAny(value, "\r\n\x00") }

// newKeyring makes a placeholder for each key, under its name or the API's usual one; also for a route without keys.
func newKeyring(r workorder.ModelRoute, secrets map[string]string) (keyring, error) {
	k := keyring{vars: map[string]string{}, keys: map[string]string{}}
	for _, name := range r.Keys {
		value := secrets[name]
		if !validKey(value) {
			return keyring{}, fmt.Errorf("model gateway: the secret %s is empty or has line breaks: it cannot be a key of %s", name, r.API)
		}
		p := newPlaceholder()
		k.vars[name], k.keys[p] = p, value
	}
	usual := r.API.KeyVariables()
	switch {
	case len(r.Keys) == 0:
		k.vars[usual[0]] = newPlaceholder()
	case secrets[usual[0]] == "" && !slices.ContainsFunc(r.Keys, func(name string) bool { return slices.Contains(usual, name) }):
		// The key has a name of the project's own, but programs look for the usual one.
		k.vars[usual[0]] = k.vars[r.Keys[0]]
	}
	return k, nil
}

// with returns the keyring with other values of the keys with these names; the placeholders stay.
func (k keyring) with(values map[string]string) keyring {
	keys := maps.Clone(k.keys)
	for name, value := range values {
		if p := k.vars[name]; keys[p] != "" {
			keys[p] = value
		}
	}
	return keyring{vars: k.vars, keys: keys}
}

// places are the headers in which clients send a key.
var places = []struct{ header, scheme string }{
	{"X-Api-Key", ""}, {"Authorization", "Bearer "}, {"Api-Key", ""}, {"X-Goog-Api-Key", ""},
}

// put replaces each placeholder in the client's headers from with its key in to. It copies no other credential.
func (k keyring) put(from, to http.Header) error {
	found := false
	for _, p := range places {
		values := from.Values(p.header)
		if len(values) > 1 {
			return fmt.Errorf("the header %s is given more than once", p.header)
		}
		if len(values) == 0 {
			continue
		}
		scheme, value := "", values[0]
		if p.scheme != "" {
			if len(value) < len(p.scheme) || !strings.EqualFold(value[:len(p.scheme)], p.scheme) {
				continue
			}
			scheme, value = p.scheme, value[len(p.scheme):]
		}
		if key, ok := k.keys[strings.TrimSpace(value)]; ok {
			to.Set(p.header, scheme+key)
			found = true
		}
	}
	if !found && len(k.keys) > 0 {
		return fmt.Errorf("the request has no placeholder of a key: send the value of the variable %s as the sandbox has it, unchanged; "+
			"other keys cannot be used", strings.Join(slices.Sorted(maps.Keys(k.vars)), " or "))
	}
	return nil
}

package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// hop are the headers of one connection.
var hop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// own are headers that the gateway sets itself, or that reveal where a request comes from.
var own = []string{"Forwarded", "X-Real-Ip", "Accept-Encoding", "Content-Length", "Expect", "Host"}

// override matches headers that make servers and proxies use another method, path or host than the checked one.
var override = pattern.New(
	`(?i)^x-(?:(?:http-)?method(?:-override)?|http-(?:host|url|path)-override|(?:original|rewrite|override|rewritten)-(?:method|url|` +
		`uri|path|host)|host(?:-override)?)$`,
)

// secretive matches header names that may carry credentials. It matches too many rather than too few,
// because services invent names of their own.
var secretive = pattern.New(`(?i)key|auth|token|cookie|secret|credential|passw|signature`)

// harmless are headers that only sound like credentials. An idempotency key and the X-Stainless-… headers of both
// providers' SDKs tell the server that a request is a retry.
func harmless(name string) bool {
	return name == "Idempotency-Key" || name == "X-Idempotency-Key" || strings.HasPrefix(name, "X-Stainless-")
}

// forwarded returns the request's headers that go to the server: all except those of the
// connection, credentials, and those that reveal the request's origin. secret reports whether a
// value contains a key or a placeholder; such a value is never forwarded, whatever the header's name.
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
			// Go's transport takes this name in this spelling as permission to retry a request
			// itself. Only the client may retry. Servers see no difference.
			delete(out, name)
			out[strings.ToLower(name)] = v
		}
	}
	out.Set("Accept-Encoding", "identity")
	return out
}

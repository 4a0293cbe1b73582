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

// own are headers that the gateway writes itself, or that say where a request comes from.
var own = []string{"Forwarded", "X-Real-Ip", "Accept-Encoding", "Content-Length", "Expect", "Host"}

// override finds headers by which servers and proxies take another method, path or host than the one that was judged.
var override = pattern.New(`(?i)^x-(?:(?:http-)?method(?:-override)?|http-(?:host|url|path)-override|(?:original|rewrite|override|rewritten)-(?:method|url|uri|path|host)|host(?:-override)?)$`)

// secretive finds headers that may carry credentials by their names. It sees more than
// there are, because services make up names of their own.
var secretive = pattern.New(`(?i)key|auth|token|cookie|secret|credential|passw|signature`)

// harmless are headers that only sound like credentials. With a key of idempotency, and with what the SDKs of
// both providers say in X-Stainless-…, a client tells the server that a request is a retry.
func harmless(name string) bool {
	return name == "Idempotency-Key" || name == "X-Idempotency-Key" || strings.HasPrefix(name, "X-Stainless-")
}

// forwarded are the headers of a request that go on: all but those of the
// connection, credentials, and what says where the request comes from. secret reports whether a
// value has a key or a placeholder in it; such a value goes nowhere, whatever it is called.
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
			// Go's transport takes this name in this spelling for the permission to send a request again by
			// itself. Only the client retries. Servers do not see a difference.
			delete(out, name)
			out[strings.ToLower(name)] = v
		}
	}
	out.Set("Accept-Encoding", "identity")
	return out
}

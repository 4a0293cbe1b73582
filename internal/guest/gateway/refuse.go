package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// refusal is an answer that the gateway writes itself.
type refusal struct {
	status int
	// kind is the name used in the audit.
	kind string
	text string
	// after is Retry-After in seconds; 0 for none.
	after int
	// final means that retrying soon is pointless.
	final bool
}

// errorTypes are the providers' names for a status.
var errorTypes = map[workorder.ModelAPI]map[int]string{
	workorder.APIAnthropic: {
		http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error", http.StatusNotFound: "not_found_error",
		http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
		http.StatusUpgradeRequired: "invalid_request_error", http.StatusUnsupportedMediaType: "invalid_request_error",
	},
	workorder.APIOpenAI: {
		http.StatusBadRequest:            "invalid_request_error",
		http.StatusUnauthorized:          "invalid_request_error",
		http.StatusNotFound:              "invalid_request_error",
		http.StatusRequestEntityTooLarge: "invalid_request_error",
		http.StatusTooManyRequests:       "requests",
		http.StatusUpgradeRequired:       "invalid_request_error",
		http.StatusUnsupportedMediaType:  "invalid_request_error",
	},
}

// write answers in the format of the API's own errors.
func (r *refusal) write(w http.ResponseWriter, api workorder.ModelAPI) {
	text := "sandbox-agent: " + r.text
	kind := errorTypes[api][r.status]
	var shape any
	if api == workorder.APIOpenAI {
		if kind == "" {
			kind = "server_error"
		}
		shape = map[string]any{"error": map[string]any{"message": text, "type": kind, "param": nil, "code": r.kind}}
	} else {
		if kind == "" {
			kind = "api_error"
		}
		shape = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": text}}
	}
	b, err := json.Marshal(shape)
	if err != nil {
		b = []byte(`{}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if r.status == http.StatusBadRequest || r.final {
		h.Set("X-Should-Retry", "false") // the SDKs of both providers obey it
	}
	if r.after > 0 {
		h.Set("Retry-After", strconv.Itoa(r.after))
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(r.status)
	_, _ = w.Write(b) // the client may be gone
}

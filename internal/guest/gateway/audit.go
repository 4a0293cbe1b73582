package gateway

import (
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/origin"
)

// line is what the audit says of one request: no body, no key, and nothing
// of the client's at any length.
type line struct {
	Time     time.Time `json:"time"`
	API      string    `json:"api,omitempty"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Status   int       `json:"status"` // 0: there was no answer
	Model    string    `json:"model,omitempty"`
	Stream   bool      `json:"stream,omitempty"`
	Input    int64     `json:"input_tokens"`
	Output   int64     `json:"output_tokens"`
	Read     int64     `json:"cache_read_tokens"`
	Write    int64     `json:"cache_write_tokens"`
	CostUSD  *float64  `json:"cost_usd"`            // null: not known
	Estimate bool      `json:"estimated,omitempty"` // the answer broke off: some of it is estimated
	// ReservedUSD is what it may have cost beyond that.
	ReservedUSD float64 `json:"reserved_usd,omitempty"`
	Millis      int64   `json:"duration_ms"`
	BytesIn     int64   `json:"bytes_in"`
	BytesOut    int64   `json:"bytes_out"`
	Upstream    string  `json:"upstream_request_id,omitempty"`
	Refused     string  `json:"refused,omitempty"`
	// Reaches names what the provider was to fetch or run for the agent, the first few, refused or not.
	Reaches []string `json:"reaches,omitempty"`
}

// clean is a client's or server's word as a log can have it.
func clean(s string) string {
	if s == "" {
		return "" // there was none
	}
	return origin.Clean(s)
}

// auditor writes lines whole.
type auditor struct {
	mu  sync.Mutex
	out io.Writer // nil: nowhere
	log *slog.Logger
}

func (a *auditor) write(l *line) {
	if a.out == nil {
		return
	}
	l.Millis = time.Since(l.Time).Milliseconds()
	l.Time = l.Time.UTC()
	b, err := json.Marshal(l)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		_, err = a.out.Write(append(b, '\n'))
	}
	if err != nil {
		a.log.Warn("write the audit of the model gateway", "error", err)
	}
}

package gateway

import (
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/origin"
)

// line is the audit record of one request: without body and key, and with
// the client's texts cut short.
type line struct {
	Time     time.Time `json:"time"`
	API      string    `json:"api,omitempty"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Status   int       `json:"status"` // 0 if there was no answer
	Model    string    `json:"model,omitempty"`
	Stream   bool      `json:"stream,omitempty"`
	Input    int64     `json:"input_tokens"`
	Output   int64     `json:"output_tokens"`
	Read     int64     `json:"cache_read_tokens"`
	Write    int64     `json:"cache_write_tokens"`
	CostUSD  *float64  `json:"cost_usd"`            // null if not known
	Estimate bool      `json:"estimated,omitempty"` // the answer broke off: part of it is estimated
	// ReservedUSD is the possible cost beyond that.
	ReservedUSD float64 `json:"reserved_usd,omitempty"`
	Millis      int64   `json:"duration_ms"`
	BytesIn     int64   `json:"bytes_in"`
	BytesOut    int64   `json:"bytes_out"`
	Upstream    string  `json:"upstream_request_id,omitempty"`
	Refused     string  `json:"refused,omitempty"`
	// Reaches names the first few things that the provider was to fetch or run for the agent, refused ones included.
	Reaches []string `json:"reaches,omitempty"`
}

// clean makes a client's or server's text safe for a log.
func clean(s string) string {
	if s == "" {
		return "" // there was none
	}
	return origin.Clean(s)
}

// auditor writes each line as a whole.
type auditor struct {
	mu  sync.Mutex
	out io.Writer // nil to drop the lines
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

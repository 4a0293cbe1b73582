package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxErrorBody bounds what passes of a server's error, in bytes.
	maxErrorBody = 1 << 20
	// chunk is how much of an answer is read at once, in bytes.
	chunk = 32 << 10
)

// answer passes the server's answer on.
func (c *call) answer(resp *http.Response) *refusal {
	c.line.Status = resp.StatusCode
	c.line.Upstream = clean(c.m.mask.String(firstOf(resp.Header, "Request-Id", "X-Request-Id")))
	if resp.StatusCode < 200 {
		return &refusal{status: http.StatusBadGateway, kind: "broken", text: fmt.Sprintf("the model's server %s does not answer in HTTP", c.route.base.Host)}
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		at := "elsewhere"
		if u, err := url.Parse(resp.Header.Get("Location")); err == nil && u.Host != "" {
			at = "to " + clean(c.m.mask.String(u.Host))
		}
		return &refusal{
			status: http.StatusBadGateway, kind: "redirect",
			text: fmt.Sprintf("the model's server %s answers with a redirect %s, which is not followed: set base_url to the right server", c.route.base.Host, at),
		}
	}
	h := c.w.Header()
	for name, values := range resp.Header {
		if slices.Contains(hop, name) || name == "Set-Cookie" || name == "Alt-Svc" {
			continue
		}
		for _, v := range values {
			h.Add(name, c.m.mask.String(v))
		}
	}
	switch {
	case resp.StatusCode >= 400:
		return c.passError(resp)
	case c.entry == nil:
		c.w.WriteHeader(resp.StatusCode)
		c.stream(resp.Body, nil)
		return nil
	}
	hold := part{room: c.m.room, patience: c.m.limits.room, over: c.m.over.Done()}
	defer hold.release()
	meter := newMeter(newShape(c.route.api), resp.Header, &hold)
	if !meter.stream && !meter.off {
		return c.passWhole(resp, meter)
	}
	c.w.WriteHeader(resp.StatusCode)
	if c.stream(resp.Body, meter) {
		c.settle(meter)
	} else {
		c.cutOff(&meter.reading)
	}
	return nil
}

func newShape(api workorder.ModelAPI) shape {
	if api == workorder.APIOpenAI {
		return openaiShape{}
	}
	return &anthropicShape{}
}

func firstOf(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// passError passes an error on, which costs nothing. It may repeat the key.
func (c *call) passError(resp *http.Response) *refusal {
	hold := part{room: c.m.room}
	defer hold.release()
	b, err := hold.fill(resp.Body, maxErrorBody)
	if err != nil && !errors.Is(err, errTooLong) {
		c.broken = true
	}
	b = b[:min(len(b), maxErrorBody)]
	if resp.Header.Get("Content-Encoding") == "" && c.r.Method != http.MethodHead {
		b = []byte(c.m.mask.String(string(b)))
		c.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	}
	c.w.WriteHeader(resp.StatusCode)
	c.put(b)
	return nil
}

// passWhole reads an answer in one piece and counts it before the client has it, so that
// nobody has an answer that is not counted.
func (c *call) passWhole(resp *http.Response, meter *meter) *refusal {
	b, err := meter.hold.fill(resp.Body, maxJSON)
	switch {
	case errors.Is(err, errTooLong):
		meter.off = true
		c.settle(meter)
	case errors.Is(err, errNoRoom):
		meter.off = true
		c.cutOff(&meter.reading)
	case err != nil:
		c.cutOff(&meter.reading)
		if c.left() {
			c.broken = true
			return nil
		}
		clear(c.w.Header())
		return &refusal{status: http.StatusBadGateway, kind: "broken", text: "the answer of the model's server broke off"}
	default:
		meter.whole(b, resp.Header.Get("Content-Encoding"))
		c.settle(meter)
	}
	c.w.WriteHeader(resp.StatusCode)
	if !c.put(b) {
		c.broken = true
	} else if meter.off {
		c.stream(resp.Body, nil)
	}
	return nil
}

// patience starts the time that the client has to take the next chunk.
func (c *call) patience() {
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.m.limits.write)) // a writer that cannot do it has no slow client either
}

// put writes to the client; false: it is gone.
func (c *call) put(b []byte) bool {
	for len(b) > 0 && !c.gone.Load() {
		c.patience()
		n, err := c.w.Write(b[:min(len(b), chunk)])
		c.line.BytesOut += int64(n)
		if err != nil {
			c.hangUp()
		}
		b = b[n:]
	}
	return c.flush()
}

func (c *call) flush() bool {
	c.patience()
	if !c.gone.Load() && c.conn.Flush() != nil {
		c.hangUp()
	}
	return !c.gone.Load()
}

// stream copies an answer piece by piece, each flushed and, before the client has it, counted.
// It reports whether the whole arrived. What nobody counts ends with its client.
func (c *call) stream(body io.Reader, meter *meter) (whole bool) {
	buf := make([]byte, chunk)
	here := c.flush()
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if meter != nil {
				c.count(meter, buf[:n])
			}
			here = here && c.put(buf[:n])
		}
		if !here {
			c.broken = true
			if meter == nil {
				return false
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if meter != nil {
				meter.end()
			}
			return true
		case err != nil:
			c.broken = true
			return false
		}
	}
}

package gateway

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxErrorBody bounds the part of a server's error that is passed on, in bytes.
	maxErrorBody = 1 << 20
	chunk        = 32 << 10
)

func (c *call) answer(resp *http.Response) *refusal {
	c.line.Status = resp.StatusCode
	c.line.Upstream = clean(c.m.mask.Load().String(firstOf(resp.Header, "Request-Id", "X-Request-Id")))
	if resp.StatusCode < 200 {
		return &refusal{
			status: http.StatusBadGateway, kind: "broken", text: fmt.Sprintf("the model's server %s does not answer in HTTP", c.route.base.Host),
		}
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		at := "elsewhere"
		if u, err := url.Parse(resp.Header.Get("Location")); err == nil && u.Host != "" {
			at = "to " + clean(c.m.mask.Load().String(u.Host))
		}
		return &refusal{
			status: http.StatusBadGateway, kind: "redirect",
			text: fmt.Sprintf(
				"the model's server %s answers with a redirect %s, which is not followed: set base_url to the right server", c.route.base.Host, at,
			),
		}
	}
	if no := c.decode(resp); no != nil {
		return no
	}
	h := c.client.w.Header()
	for name, values := range resp.Header {
		if slices.Contains(hop, name) || name == "Set-Cookie" || name == "Alt-Svc" || override.MatchString(name) ||
			c.m.mask.Load().String(name) != name {
			continue
		}
		for _, v := range values {
			h.Add(name, c.m.mask.Load().String(v))
		}
	}
	if c.cost != nil && resp.StatusCode < 300 {
		c.m.throttle.answered(c.modelKey(), time.Now())
	}
	switch {
	case resp.StatusCode >= 400:
		return c.passError(resp)
	case c.cost == nil && c.route.api == workorder.APIOpenAI && c.r.Method == http.MethodGet &&
		strings.HasPrefix(c.ask.path, "/v1/responses/") &&
		strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json"):
		return c.passResponse(resp)
	case c.cost == nil:
		c.client.w.WriteHeader(resp.StatusCode)
		c.stream(resp.Body, nil)
		return nil
	}
	hold := memoryShare{room: c.m.room, patience: c.m.limits.room, over: c.m.over.Done()}
	defer hold.release()
	meter := newMeter(newUsageParser(c.route.api), resp.Header, &hold)
	if !meter.stream && !meter.off {
		return c.passWhole(resp, meter)
	}
	c.client.w.WriteHeader(resp.StatusCode)
	if c.stream(resp.Body, meter) {
		c.settle(meter)
	} else {
		c.cutOff(&meter.usageState)
	}
	return nil
}

func newUsageParser(api workorder.ModelAPI) usageParser {
	if api == workorder.APIOpenAI {
		return openaiParser{}
	}
	return &anthropicParser{}
}

func firstOf(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// decode decompresses an answer for the meter and the key masker. The gateway asks for no compression.
func (c *call) decode(resp *http.Response) *refusal {
	if c.r.Method == http.MethodHead {
		return nil
	}
	encoding := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ","))
	switch encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		resp.Body = &unzipped{ReadCloser: resp.Body}
	default:
		if resp.StatusCode < 300 {
			c.unread = true
			c.cutOff(&usageState{})
		}
		return &refusal{status: http.StatusBadGateway, kind: "encoding", text: fmt.Sprintf(
			"the model's server %s sends the unrequested encoding %q: disable it there", c.route.base.Host, clean(encoding))}
	}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length") // a mask differs in length from the key
	return nil
}

// unzipped opens the gzip stream at the first Read: when its header arrives, a stream has no bytes yet.
type unzipped struct {
	io.ReadCloser
	z *gzip.Reader
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.z == nil {
		z, err := gzip.NewReader(u.ReadCloser)
		if err != nil {
			return 0, err
		}
		u.z = z
	}
	return u.z.Read(p)
}

func (c *call) passError(resp *http.Response) *refusal {
	hold := memoryShare{room: c.m.room}
	defer hold.release()
	b, err := hold.fill(resp.Body, maxErrorBody)
	if err != nil && !errors.Is(err, errTooLong) {
		c.broken = true
	}
	if c.cost != nil {
		c.m.throttle.refused(c.modelKey(), resp.StatusCode, resp.Header, b, time.Now())
	}
	c.client.w.WriteHeader(resp.StatusCode)
	c.client.put(b[:min(len(b), maxErrorBody)])
	if err == nil { // otherwise the held-back bytes may be most of a key
		c.client.rest()
	}
	return nil
}

// passResponse passes on a response that the provider stored, possibly of an answer that broke off here.
func (c *call) passResponse(resp *http.Response) *refusal {
	hold := memoryShare{room: c.m.room, patience: c.m.limits.room, over: c.m.over.Done()}
	defer hold.release()
	b, err := hold.fill(resp.Body, maxJSON)
	if err == nil {
		c.requestBytes(b)
	}
	c.client.w.WriteHeader(resp.StatusCode)
	switch here := c.client.put(b); {
	case errors.Is(err, errTooLong) || errors.Is(err, errNoRoom):
		c.stream(resp.Body, nil)
	case err != nil || !here:
		c.broken = true
	default:
		c.client.rest()
	}
	return nil
}

// passWhole reads an answer in one piece and counts it before the client gets it.
func (c *call) passWhole(resp *http.Response, meter *meter) *refusal {
	b, err := meter.hold.fill(resp.Body, maxJSON)
	switch {
	case errors.Is(err, errTooLong):
		meter.off = true
		c.settle(meter)
	case errors.Is(err, errNoRoom):
		meter.off, c.unread = true, true
		c.cutOff(&meter.usageState)
	case err != nil:
		c.cutOff(&meter.usageState)
		if c.left() {
			c.broken = true
			return nil
		}
		clear(c.client.w.Header())
		return &refusal{status: http.StatusBadGateway, kind: "broken", text: "the answer of the model's server broke off"}
	default:
		meter.whole(b)
		c.settle(meter)
	}
	c.client.w.WriteHeader(resp.StatusCode)
	if !c.client.put(b) {
		c.broken = true
	} else if meter.off {
		c.stream(resp.Body, nil)
	} else {
		c.client.rest()
	}
	return nil
}

// stream copies an answer in pieces: each is counted, then sent. It reports whether the whole answer arrived.
func (c *call) stream(body io.Reader, meter *meter) (whole bool) {
	buf := make([]byte, chunk)
	here := c.client.flush()
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if meter != nil {
				c.count(meter, buf[:n])
			}
			here = here && c.client.put(buf[:n])
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
			if here {
				c.client.rest()
			}
			return true
		case err != nil:
			c.broken = true
			return false
		}
	}
}

// client writes the answer to the agent: in chunks, each with its own deadline, and with keys masked.
type client struct {
	w      http.ResponseWriter
	conn   *http.ResponseController
	limit  time.Duration // for a chunk
	masked io.WriteCloser
	// gone means that the client has hung up or takes nothing more.
	gone atomic.Bool
	// hangUp sets gone, and bounds how long the rest of the answer is read.
	hangUp func()
	sent   int64 // bytes
}

func (c *client) patience() {
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.limit)) // a writer without deadlines has no slow client either
}

var errGone = errors.New("the client has gone")

func (c *client) Write(b []byte) (int, error) {
	all := len(b)
	for len(b) > 0 {
		if c.gone.Load() {
			return all - len(b), errGone
		}
		c.patience()
		n, err := c.w.Write(b[:min(len(b), chunk)])
		c.sent += int64(n)
		if err != nil {
			c.hangUp()
		}
		b = b[n:]
	}
	return all, nil
}

// put writes to the client with keys masked; it returns false if the client is gone. Only a tail that may begin a key
// is held back.
func (c *client) put(b []byte) bool {
	_, _ = c.masked.Write(b) // an error means that the client has gone
	return c.flush()
}

// rest writes the held-back tail once the whole answer has arrived.
func (c *client) rest() {
	_ = c.masked.Close() // an error means that the client has gone
	c.flush()
}

func (c *client) flush() bool {
	c.patience()
	if !c.gone.Load() && c.conn.Flush() != nil {
		c.hangUp()
	}
	return !c.gone.Load()
}

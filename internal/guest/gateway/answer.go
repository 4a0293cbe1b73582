package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

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
	meter := newMeter(newShape(c.route.api), resp.Header)
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
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		c.broken = true
	}
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
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON+1))
	if err != nil {
		c.cutOff(&meter.reading)
		if c.r.Context().Err() != nil {
			c.broken = true
			return nil
		}
		clear(c.w.Header())
		return &refusal{status: http.StatusBadGateway, kind: "broken", text: "the answer of the model's server broke off"}
	}
	if len(b) > maxJSON {
		meter.off = true
	} else {
		meter.whole(b, resp.Header.Get("Content-Encoding"))
	}
	c.settle(meter)
	c.w.WriteHeader(resp.StatusCode)
	c.put(b)
	if meter.off {
		c.stream(resp.Body, nil)
	}
	return nil
}

func (c *call) put(b []byte) bool {
	n, err := c.w.Write(b)
	c.line.BytesOut += int64(n)
	return err == nil
}

// stream copies an answer piece by piece, each flushed and, before the client has it, counted.
// It reports whether the whole arrived.
func (c *call) stream(body io.Reader, meter *meter) (whole bool) {
	flush := http.NewResponseController(c.w)
	buf := make([]byte, chunk)
	gone := flush.Flush() != nil
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if meter != nil {
				c.count(meter, buf[:n])
			}
			if !gone {
				gone = !c.put(buf[:n]) || flush.Flush() != nil
			}
			if gone && meter == nil {
				c.broken = true
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

// count feeds the meter and takes its news into the ledger.
func (c *call) count(meter *meter, b []byte) {
	before := meter.tokens
	meter.write(b)
	if meter.tokens != before {
		c.record(&meter.reading)
	}
}

// record takes the counts so far into the ledger and the audit.
func (c *call) record(r *reading) {
	price, ok := c.m.prices.find(r.model, c.ask.model)
	var cost *float64
	why := fmt.Sprintf("the price of the model %q is not known", clean(firstText(r.model, c.ask.model)))
	if ok {
		if usd, all := price.cost(r.tokens); all {
			cost = &usd
		} else {
			why = fmt.Sprintf("a call of %q used something whose price is not known (faster service, or a tool of the provider)", clean(c.ask.model))
		}
	}
	c.entry.update(r.tokens, cost, why)
	c.line.Input, c.line.Output, c.line.Read, c.line.Write, c.line.CostUSD = r.input, r.output, r.cacheRead, r.cacheWrite, cost
	if r.model != "" {
		c.line.Model = clean(r.model)
	}
}

func firstText(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// settle takes a complete answer into the ledger.
func (c *call) settle(meter *meter) {
	switch {
	case meter.final && !meter.bad:
		c.record(&meter.reading)
	case meter.failed && !meter.bad && !meter.prompt && meter.said == 0:
		// An error that began with the status of a success: no model was used.
		c.record(&meter.reading)
	case (meter.prompt || meter.failed) && !meter.bad: // it ended with an error in its middle
		c.cutOff(&meter.reading)
	default:
		c.entry.update(meter.tokens, nil, fmt.Sprintf("an answer of the model %q did not say what it used", clean(c.ask.model)))
		c.line.CostUSD = nil
		c.m.log.Warn("a model's answer cannot be metered", "api", c.route.api, "path", c.ask.path, "model", c.line.Model)
	}
}

// cutOff takes an answer that broke off into the ledger. The provider bills what was read and
// written by then; what it did not come to say is estimated.
func (c *call) cutOff(r *reading) {
	if c.entry == nil {
		return
	}
	if r.final && !r.bad {
		c.record(r)
		return
	}
	c.line.Estimate = true
	if !r.prompt && c.ask.linked || r.bad {
		c.line.CostUSD = nil
		c.entry.update(r.tokens, nil, "an answer broke off before it said what it used")
		return
	}
	if !r.prompt {
		r.input = c.promptTokens()
	}
	r.output = max(r.output, min(r.said/bytesPerToken, maxTokens))
	c.record(r)
}

package gateway

import (
	"fmt"
	"time"
)

// promptTokens estimates the prompt's tokens by its size.
func (c *call) promptTokens() int64 {
	return min(int64(len(c.ask.body)/bytesPerToken), maxTokens)
}

// count feeds the meter and records new counts in the ledger.
func (c *call) count(meter *meter, b []byte) {
	before := meter.tokens
	meter.write(b)
	if meter.tokens != before {
		c.record(&meter.reading)
	}
}

// record writes the counts so far into the ledger and the audit.
func (c *call) record(r *reading) {
	model := c.m.mask.String(r.model) // text from a server
	price, ok := c.m.prices.find(model, c.ask.model)
	var cost *float64
	why := fmt.Sprintf("the price of the model %q is unknown", clean(firstText(model, c.ask.model)))
	if ok {
		if usd, all := price.cost(r.tokens); all {
			cost = &usd
		} else {
			why = fmt.Sprintf("a call of %q used a feature without a known price (faster service, or a tool of the provider)", clean(c.ask.model))
		}
	}
	c.entry.update(r.tokens, cost, why)
	c.line.Input, c.line.Output, c.line.Read, c.line.Write, c.line.CostUSD = r.input, r.output, r.cacheRead, r.cacheWrite, cost
	if model != "" {
		c.line.Model = clean(model)
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

// final records an answer that reported all its usage.
func (c *call) final(r *reading) {
	c.record(r)
	c.entry.final()
}

// settle records an answer that reached its end.
func (c *call) settle(meter *meter) {
	switch {
	case meter.final && !meter.bad:
		c.final(&meter.reading)
	case meter.failed && !meter.bad && !meter.prompt && meter.said == 0:
		// An error that began with a success status: no model was used.
		c.record(&meter.reading)
	case !meter.bad && (meter.failed || meter.prompt || meter.stream && !meter.done && meter.said > 0):
		// It stopped in the middle, with or without a connection error.
		c.estimate(&meter.reading)
	default:
		c.entry.update(meter.tokens, nil, fmt.Sprintf("an answer of the model %q did not report its usage", clean(c.ask.model)))
		c.line.CostUSD = nil
		c.m.log.Warn("a model's answer cannot be metered", "api", c.route.api, "path", c.ask.path, "model", c.line.Model)
	}
}

// cutOff records a call whose answer broke off or never came.
func (c *call) cutOff(r *reading) {
	switch {
	case c.entry == nil:
	case r.final && !r.bad:
		c.final(r)
	default:
		c.estimate(r)
	}
}

// estimate records the received part of an answer as cost, and what the provider may bill beyond it as a reserve.
func (c *call) estimate(r *reading) {
	c.line.Estimate = true
	if !r.prompt && c.ask.linked || r.bad {
		c.line.CostUSD = nil
		c.entry.update(r.tokens, nil, "an answer broke off before it reported its usage")
		return
	}
	seen := *r
	seen.output = max(r.output, min(r.said/bytesPerToken, maxTokens))
	if !r.prompt && c.line.Status != 0 { // a server that answers has read the prompt
		seen.input = c.promptTokens()
	}
	c.record(&seen)
	price, ok := c.m.prices.find(c.m.mask.String(r.model), c.ask.model)
	if !ok {
		return // the ledger has noted that the cost is unknown
	}
	most := 0.0
	if r.prompt {
		all := seen.tokens
		all.output = c.mostWritten(r, seen.output)
		most, _ = price.cost(all)
	} else {
		most = price.most(c.promptTokens(), c.mostWritten(r, seen.output), c.ask.fast, c.ask.hour)
	}
	cost, _ := price.cost(seen.tokens)
	c.line.ReservedUSD = max(most-cost, 0)
	c.entry.breakOff(c.line.ReservedUSD, c.left() || c.unread, r.id, c.ask.model)
}

// mostWritten is the most tokens that a server can have written for an answer that broke off after this many.
//
// A server finishes an answer that is in one piece, that the client gave up or that we did not read. In a stream whose
// server went away, a text token has at least one byte. Hidden thoughts have no bytes; only the elapsed time bounds them.
// If there was no answer at all, a usual length is enough: in an outage nothing is written.
func (c *call) mostWritten(r *reading, seen int64) int64 {
	var n int64
	switch {
	case c.left(), c.unread:
		n = c.ask.most
	case c.line.Status == 0:
		n = usualOutput
	case !c.ask.stream:
		n = c.ask.most
	default:
		n = int64(time.Since(c.line.Time).Seconds() * fastest)
		if r.said > 0 && !r.hidden {
			n = min(n, r.said)
		}
		n = max(n, seen) + inFlight
	}
	return max(min(n, c.ask.most), seen)
}

// told records the usage that the provider reports later for an answer that broke off.
func (c *call) told(b []byte) {
	var r reading
	openaiShape{}.object(&r, b)
	if !r.final || r.bad || r.id == "" {
		return
	}
	asked, ok := c.m.ledger.cutOf(r.id)
	if !ok {
		return
	}
	price, ok := c.m.prices.find(c.m.mask.String(r.model), asked)
	if !ok {
		return // the cost is still unknown: the reserve stays
	}
	if usd, all := price.cost(r.tokens); all {
		c.m.ledger.evidence(r.id, r.tokens, usd)
	}
}

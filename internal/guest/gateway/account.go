package gateway

import (
	"fmt"
	"time"
)

// promptTokens is what the prompt has, by its size.
func (c *call) promptTokens() int64 {
	return min(int64(len(c.ask.body)/bytesPerToken), maxTokens)
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
	model := c.m.mask.String(r.model) // a server's word
	price, ok := c.m.prices.find(model, c.ask.model)
	var cost *float64
	why := fmt.Sprintf("the price of the model %q is not known", clean(firstText(model, c.ask.model)))
	if ok {
		if usd, all := price.cost(r.tokens); all {
			cost = &usd
		} else {
			why = fmt.Sprintf("a call of %q used something whose price is not known (faster service, or a tool of the provider)", clean(c.ask.model))
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

// final takes an answer that said all that it used into the ledger.
func (c *call) final(r *reading) {
	c.record(r)
	c.entry.final()
}

// settle takes an answer that came to its end into the ledger.
func (c *call) settle(meter *meter) {
	switch {
	case meter.final && !meter.bad:
		c.final(&meter.reading)
	case meter.failed && !meter.bad && !meter.prompt && meter.said == 0:
		// An error that began with the status of a success: no model was used.
		c.record(&meter.reading)
	case !meter.bad && (meter.failed || meter.prompt || meter.stream && !meter.done && meter.said > 0):
		// It stopped in the middle, whether or not the connection says so.
		c.estimate(&meter.reading)
	default:
		c.entry.update(meter.tokens, nil, fmt.Sprintf("an answer of the model %q did not say what it used", clean(c.ask.model)))
		c.line.CostUSD = nil
		c.m.log.Warn("a model's answer cannot be metered", "api", c.route.api, "path", c.ask.path, "model", c.line.Model)
	}
}

// cutOff takes a call into the ledger whose answer broke off or never came.
func (c *call) cutOff(r *reading) {
	switch {
	case c.entry == nil:
	case r.final && !r.bad:
		c.final(r)
	default:
		c.estimate(r)
	}
}

// estimate takes what was seen of an answer into the ledger as cost, and what the provider may bill beyond it as a reserve.
func (c *call) estimate(r *reading) {
	c.line.Estimate = true
	if !r.prompt && c.ask.linked || r.bad {
		c.line.CostUSD = nil
		c.entry.update(r.tokens, nil, "an answer broke off before it said what it used")
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
		return // the ledger knows that it does not know
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

// mostWritten is how many tokens a server can have written for an answer that broke off, of which so many were seen.
//
// One that was given up by its client, or is in one piece, is written to its end, whoever reads; so is one that we did not read. Of a stream whose
// server went away: a token of text has a byte at least, but thoughts need not be shown, and then
// only the time bounds them. When there was no answer at all, a usual one is enough: an outage is none.
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

// told takes what the provider says later of an answer that broke off.
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
		return // what it cost is as unknown as before: the reserve stays
	}
	if usd, all := price.cost(r.tokens); all {
		c.m.ledger.evidence(r.id, r.tokens, usd)
	}
}

package gateway

import "fmt"

// promptTokens is what the prompt has, by its size.
func (c *call) promptTokens() int64 {
	return min(int64(len(c.ask.body)/bytesPerToken), maxTokens)
}

// count feeds the meter and takes its news into the ledger.
func (c *call) count(meter *meter, b []byte) {
	before := meter.tokens
	meter.write(b)
	if meter.tokens != before {
		c.record(&meter.reading, 0)
	}
}

// record takes the counts so far into the ledger and the audit; it costs at least so much.
func (c *call) record(r *reading, least float64) {
	model := c.m.mask.String(r.model) // a server's word
	price, ok := c.m.prices.find(model, c.ask.model)
	var cost *float64
	why := fmt.Sprintf("the price of the model %q is not known", clean(firstText(model, c.ask.model)))
	if ok {
		if usd, all := price.cost(r.tokens); all {
			cost = new(max(usd, least))
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
	c.record(r, 0)
	c.entry.final()
}

// settle takes a complete answer into the ledger.
func (c *call) settle(meter *meter) {
	switch {
	case meter.final && !meter.bad:
		c.final(&meter.reading)
	case meter.failed && !meter.bad && !meter.prompt && meter.said == 0:
		// An error that began with the status of a success: no model was used.
		c.record(&meter.reading, 0)
	case meter.failed && !meter.bad: // the server says that it stopped in the middle
		c.estimate(&meter.reading, meter.said/bytesPerToken)
	case meter.prompt && !meter.bad:
		c.estimate(&meter.reading, c.ask.most)
	default:
		c.entry.update(meter.tokens, nil, fmt.Sprintf("an answer of the model %q did not say what it used", clean(c.ask.model)))
		c.line.CostUSD = nil
		c.m.log.Warn("a model's answer cannot be metered", "api", c.route.api, "path", c.ask.path, "model", c.line.Model)
	}
}

// cutOff takes a call into the ledger whose answer broke off or never came. The provider bills what was read and
// written by then, which may be more than it came to say: thoughts are hidden. Only when it did not
// answer at all, to a client that waited, a usual answer is enough: an outage must not use up a budget.
func (c *call) cutOff(r *reading) {
	switch {
	case c.entry == nil:
	case r.final && !r.bad:
		c.final(r)
	case c.line.Status == 0 && !c.left():
		c.estimate(r, min(usualOutput, c.ask.most))
	default:
		c.estimate(r, c.ask.most)
	}
}

// estimate takes what is not known of a call from what it asked for.
func (c *call) estimate(r *reading, output int64) {
	c.line.Estimate = true
	if !r.prompt && c.ask.linked || r.bad {
		c.line.CostUSD = nil
		c.entry.update(r.tokens, nil, "an answer broke off before it said what it used")
		return
	}
	least := 0.0
	r.output = max(r.output, min(output, maxTokens))
	if !r.prompt {
		r.input = c.promptTokens()
		if price, ok := c.m.prices.find(r.model, c.ask.model); ok {
			least = price.most(r.input, r.output, c.ask.fast, c.ask.hour)
		}
	}
	c.record(r, least)
}

package gateway

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

//go:embed prices.json
var pricesJSON []byte

// rates are US dollars per million tokens.
type rates struct {
	Input        float64 `json:"input"`
	Output       float64 `json:"output"`
	CacheRead    float64 `json:"cache_read"`
	CacheWrite   float64 `json:"cache_write"`
	CacheWrite1h float64 `json:"cache_write_1h"`
}

type price struct {
	rates
	// Long applies to the whole request if its prompt has more tokens than Above.
	Long *longRates `json:"long"`
	// Fast, Flex and USOnly are price factors. Zero means not known.
	Fast   float64 `json:"fast"`
	Flex   float64 `json:"flex"`
	USOnly float64 `json:"us_only"`
	// WebSearch is dollars per search on the server. Zero means not known.
	WebSearch float64 `json:"web_search"`
}

type longRates struct {
	Above int64 `json:"above"`
	rates
}

type priceTable struct {
	Date   string `json:"date"`
	Source string `json:"source"`
	Groups []struct {
		Source    string           `json:"source"`
		Flex      float64          `json:"flex"`
		USOnly    float64          `json:"us_only"`
		WebSearch float64          `json:"web_search"`
		Models    map[string]price `json:"models"`
	} `json:"groups"`
}

// builtin is the embedded table by model. If two groups have the same model, the first counts.
var builtin = sync.OnceValues(func() (map[string]price, error) {
	var t priceTable
	if err := json.Unmarshal(pricesJSON, &t); err != nil {
		return nil, fmt.Errorf("read the table of prices: %w", err)
	}
	all := map[string]price{}
	for _, g := range t.Groups {
		for name, p := range g.Models {
			p.Flex, p.USOnly, p.WebSearch = g.Flex, g.USOnly, g.WebSearch
			if _, ok := all[name]; !ok {
				all[name] = p
			}
		}
	}
	return all, nil
})

type pricer struct {
	own   map[string]workorder.ModelPrice
	table map[string]price
}

func newPricer(own map[string]workorder.ModelPrice) (pricer, error) {
	table, err := builtin()
	return pricer{own: own, table: table}, err
}

// find returns the price of the first name that has one. The project's prices take precedence over the table.
func (p pricer) find(names ...string) (price, bool) {
	for _, n := range names {
		if own, ok := p.own[n]; ok {
			// A price for the short-lived cache also applies to the long-lived one.
			r := rates{Input: own.Input, Output: own.Output, CacheRead: own.CacheRead, CacheWrite: own.CacheWrite, CacheWrite1h: own.CacheWrite}
			return price{rates: r, Fast: 1, Flex: 1, USOnly: 1}, true
		}
	}
	for _, n := range names {
		if pr, ok := p.inTable(n); ok {
			return pr, true
		}
	}
	return price{}, false
}

var (
	// vendorPrefix is the prefix that proxies and clouds add to a model's name.
	vendorPrefix = lazyregexp.New(
		`^(anthropic|openai|bedrock|converse|vertex_ai|azure|azure_ai|openrouter|litellm_proxy|models|gemini|google|xai|x-ai|deepseek|` +
			`mistral|mistralai|moonshotai|moonshot|zai|z-ai|dashscope|alibaba|qwen)/`,
	)
	// bedrockPrefix and bedrockSuffix are parts of Amazon's names: us.anthropic.….-v1:0.
	bedrockPrefix = lazyregexp.New(`^((us|eu|apac|jp|au|ca|us-gov|global)\.)?anthropic\.`)
	bedrockSuffix = lazyregexp.New(`-v[0-9](:[0-9])?$`)
	// dateSuffix is a version by date: Google's has @ before it, others a hyphen.
	dateSuffix = lazyregexp.New(`(-v[0-9])?[-@](20[0-9]{6}|20[0-9]{2}-[01][0-9]-[0-3][0-9])$`)
)

// inTable looks up the name, then without vendor additions. It never matches by prefix: gpt-5-mini is not gpt-5.
func (p pricer) inTable(name string) (price, bool) {
	if pr, ok := p.table[name]; ok {
		return pr, true
	}
	for vendorPrefix.MatchString(name) {
		name = name[strings.IndexByte(name, '/')+1:]
		if pr, ok := p.table[name]; ok {
			return pr, true
		}
	}
	if at := bedrockPrefix.FindString(name); at != "" {
		name = bedrockSuffix.ReplaceAllString(name[len(at):], "")
	}
	if pr, ok := p.table[name]; ok {
		return pr, true
	}
	pr, ok := p.table[dateSuffix.ReplaceAllString(name, "")]
	return pr, ok
}

// cost returns a call's cost in US dollars; ok is false if the price of a part is not known.
func (p price) cost(t tokens) (usd float64, ok bool) {
	r := p.rates
	if p.Long != nil && t.input+t.cacheRead+t.cacheWrite > p.Long.Above {
		r = p.Long.rates
	}
	hour := cmp.Or(r.CacheWrite1h, r.CacheWrite)
	// A missing price for used tokens: take the model's input price. Cache prices are below it or little above it.
	if r.CacheRead == 0 && r.Input > 0 {
		r.CacheRead = r.Input
	}
	if r.CacheWrite == 0 && r.Input > 0 {
		r.CacheWrite = r.Input
	}
	hour = cmp.Or(hour, r.CacheWrite)
	usd = float64(t.input)*r.Input + float64(t.output)*r.Output + float64(t.cacheRead)*r.CacheRead +
		float64(t.cacheWrite-t.cacheWrite1h)*r.CacheWrite + float64(t.cacheWrite1h)*hour
	usd /= 1e6
	for _, factor := range []struct {
		applies bool
		by      float64
	}{{t.fast, p.Fast}, {t.flex, p.Flex}, {t.usOnly, p.USOnly}} {
		if !factor.applies {
			continue
		}
		if factor.by == 0 {
			return 0, false
		}
		usd *= factor.by
	}
	if t.searches > 0 {
		if p.WebSearch == 0 {
			return 0, false
		}
		usd += float64(t.searches) * p.WebSearch
	}
	return usd, !t.unpriced
}

// most is the highest cost of a call with that prompt and answer. A part without a known price counts as zero.
func (p price) most(prompt, answer int64, fast, hour bool) (usd float64) {
	ways := []tokens{{input: prompt}, {cacheWrite: prompt}}
	if hour {
		ways = append(ways, tokens{cacheWrite: prompt, cacheWrite1h: prompt})
	}
	for _, t := range ways {
		t.output, t.fast, t.usOnly = answer, fast && p.Fast > 0, p.USOnly > 0
		if cost, ok := p.cost(t); ok {
			usd = max(usd, cost)
		}
	}
	return usd
}

func (c *call) promptTokens() int64 { return min(int64(len(c.ask.body)/bytesPerToken), maxTokens) }

func (c *call) count(meter *meter, b []byte) {
	before := meter.tokens
	meter.write(b)
	if meter.tokens != before {
		c.record(&meter.usageState)
	}
}

// record writes the counts so far into the budget and the audit.
func (c *call) record(r *usageState) {
	model := c.m.mask.Load().String(r.model) // text from a server
	price, ok := c.m.prices.find(model, c.ask.model)
	var cost *float64
	why := fmt.Sprintf("the price of the model %q is unknown", clean(cmp.Or(model, c.ask.model)))
	if ok {
		if usd, all := price.cost(r.tokens); all {
			cost = &usd
		} else {
			why = fmt.Sprintf("a call of %q used a feature without a known price (faster service, or a tool of the provider)", clean(c.ask.model))
		}
	}
	c.cost.update(r.tokens, cost, why)
	c.line.Input, c.line.Output, c.line.Read, c.line.Write, c.line.CostUSD = r.input, r.output, r.cacheRead, r.cacheWrite, cost
	if model != "" {
		c.line.Model = clean(model)
	}
}

func (c *call) final(r *usageState) {
	c.record(r)
	c.cost.final()
}

// settle records an answer that reached its end.
func (c *call) settle(meter *meter) {
	switch {
	case meter.final && !meter.bad:
		c.final(&meter.usageState)
	case meter.failed && !meter.bad && !meter.prompt && meter.said == 0:
		// An error that began with a success status: no model was used.
		c.record(&meter.usageState)
	case !meter.bad && (meter.failed || meter.prompt || meter.stream && !meter.done && meter.said > 0):
		// It stopped in the middle, with or without a connection error.
		c.estimate(&meter.usageState)
	default:
		c.cost.update(meter.tokens, nil, fmt.Sprintf("an answer of the model %q did not report its usage", clean(c.ask.model)))
		c.line.CostUSD = nil
		c.m.log.Warn("a model's answer cannot be metered", "api", c.route.api, "path", c.ask.path, "model", c.line.Model)
	}
}

// cutOff records a call whose answer broke off or never came.
func (c *call) cutOff(r *usageState) {
	switch {
	case c.cost == nil:
	case r.final && !r.bad:
		c.final(r)
	default:
		c.estimate(r)
	}
}

// estimate records the received part of an answer as cost, and what the provider may bill beyond it as a reserve.
func (c *call) estimate(r *usageState) {
	c.line.Estimate = true
	if !r.prompt && c.ask.linked || r.bad {
		c.line.CostUSD = nil
		c.cost.update(r.tokens, nil, "an answer broke off before it reported its usage")
		return
	}
	seen := *r
	seen.output = max(r.output, min(r.said/bytesPerToken, maxTokens))
	if !r.prompt && c.line.Status != 0 { // a server that answers has read the prompt
		seen.input = c.promptTokens()
	}
	c.record(&seen)
	price, ok := c.m.prices.find(c.m.mask.Load().String(r.model), c.ask.model)
	if !ok {
		return // the budget has recorded that the cost is unknown
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
	c.cost.breakOff(c.line.ReservedUSD, c.left() || c.unread, r.id, c.ask.model)
}

// mostWritten is the most tokens that a server can have written for an answer that broke off after seen bytes. A server
// finishes an answer that is in one piece or that its client gave up. In a stream whose server went away, a text token
// has at least one byte; hidden thoughts are bounded by the elapsed time. Without any answer a usual length is assumed.
func (c *call) mostWritten(r *usageState, seen int64) int64 {
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

// requestBytes records the usage that the provider reports later for an answer that broke off.
func (c *call) requestBytes(b []byte) {
	var r usageState
	openaiParser{}.object(&r, b)
	if !r.final || r.bad || r.id == "" {
		return
	}
	asked, ok := c.m.budget.cutOf(r.id)
	if !ok {
		return
	}
	price, ok := c.m.prices.find(c.m.mask.Load().String(r.model), asked)
	if !ok {
		return // the cost is still unknown: the reserve stays
	}
	if usd, all := price.cost(r.tokens); all {
		c.m.budget.evidence(r.id, r.tokens, usd)
	}
}

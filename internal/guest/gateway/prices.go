package gateway

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

//go:embed prices.json
var pricesJSON []byte

// rates are US dollars for a million tokens.
type rates struct {
	Input        float64 `json:"input"`
	Output       float64 `json:"output"`
	CacheRead    float64 `json:"cache_read"`
	CacheWrite   float64 `json:"cache_write"`
	CacheWrite1h float64 `json:"cache_write_1h"`
}

// price is what a model costs.
type price struct {
	rates
	// Long is for the whole of a request whose prompt has more tokens than Above.
	Long *longRates `json:"long"`
	// Fast, Flex and USOnly multiply the price for the provider's faster or slower
	// service and for processing in the United States. 0: not known.
	Fast   float64 `json:"fast"`
	Flex   float64 `json:"flex"`
	USOnly float64 `json:"us_only"`
	// WebSearch is dollars for one search on the server. 0: not known.
	WebSearch float64 `json:"web_search"`
}

type longRates struct {
	Above int64 `json:"above"`
	rates
}

// priceTable is prices.json.
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

// builtin is the embedded table by model. Of two groups with one model the first counts.
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

// pricer finds the price of a model.
type pricer struct {
	own   map[string]workorder.ModelPrice
	table map[string]price
}

func newPricer(own map[string]workorder.ModelPrice) (pricer, error) {
	table, err := builtin()
	return pricer{own: own, table: table}, err
}

// find looks for the price of the first of these names that has one; the project's
// prices come before the table, whichever name they are for.
func (p pricer) find(names ...string) (price, bool) {
	for _, n := range names {
		if own, ok := p.own[n]; ok {
			// A price for the cache's short life counts for the long one, too.
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
	// vendorPrefix is what proxies and clouds put before a model's own name.
	vendorPrefix = pattern.New(`^(anthropic|openai|bedrock|converse|vertex_ai|azure|azure_ai|openrouter|litellm_proxy|models|gemini|google|xai|x-ai|deepseek|mistral|mistralai|moonshotai|moonshot|zai|z-ai|dashscope|alibaba|qwen)/`)
	// bedrockPrefix and bedrockSuffix are those of Amazon's names: us.anthropic.….-v1:0.
	bedrockPrefix = pattern.New(`^((us|eu|apac|jp|au|ca|us-gov|global)\.)?anthropic\.`)
	bedrockSuffix = pattern.New(`-v[0-9](:[0-9])?$`)
	// vertexVersion stands before Google's @date.
	dateSuffix = pattern.New(`(-v[0-9])?[-@](20[0-9]{6}|20[0-9]{2}-[01][0-9]-[0-3][0-9])$`)
)

// inTable looks for a name as it is, and then without what is known to be no
// part of a model's name: never by a prefix, because gpt-5-mini is not gpt-5.
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

// cost is what a call costs in US dollars; ok is false when a part of it has no known price.
func (p price) cost(t tokens) (usd float64, ok bool) {
	r := p.rates
	if p.Long != nil && t.input+t.cacheRead+t.cacheWrite > p.Long.Above {
		r = p.Long.rates
	}
	hour := r.CacheWrite1h
	if hour == 0 {
		hour = r.CacheWrite
	}
	// A price that is missing where the tokens are not: the model's own for input, which
	// the cache's are a part of or a little more than.
	if r.CacheRead == 0 && r.Input > 0 {
		r.CacheRead = r.Input
	}
	if r.CacheWrite == 0 && r.Input > 0 {
		r.CacheWrite = r.Input
	}
	if hour == 0 {
		hour = r.CacheWrite
	}
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

// most is what a call with that prompt and answer can cost, whatever of the prompt is read from
// the cache or written to it. A part without a known price counts nothing.
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

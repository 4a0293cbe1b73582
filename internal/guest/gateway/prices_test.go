package gateway

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestPriceNames(t *testing.T) {
	p, err := newPricer(map[string]workorder.ModelPrice{"claude-opus-5": {Input: 1}, "house/model": {Input: 2, Output: 3}})
	if err != nil {
		t.Fatal(err)
	}
	for name, input := range map[string]float64{
		"claude-sonnet-4-5": 3, "claude-sonnet-4-5-20250929": 3, "anthropic/claude-sonnet-4-5": 3, "openrouter/anthropic/claude-sonnet-4-5": 3,
		"us.anthropic.claude-sonnet-4-5-20250929-v1:0": 3, "bedrock/eu.anthropic.claude-opus-4-6-v1": 5, "anthropic.claude-sonnet-5-5": 2, "claude-haiku-4-5@20251001": 1,
		"us.anthropic.claude-3-5-sonnet-20241022-v2:0": 3, "claude-3-5-sonnet-v2@20241022": 3, "claude-sonnet-4-20250514": 3, "claude-fable-5-2": 8, "claude-haiku-5-5": .1,
		"gpt-5": 1.25, "gpt-5-mini": .25, "gpt-5-mini-2025-08-07": .25, "openai/gpt-5-nano": .05, "gpt-4o-2024-05-13": 5, "gpt-4o-2024-08-06": 2.5, "gpt-6.1-sol-2026-09-29": 2,
		"claude-opus-5": 1, "house/model": 2, // the project's own, exactly
		"claude-opus-5-20260101": 5, "anthropic/claude-opus-5": 5,
		// Not to be guessed:
		"gpt-5-large": -1, "gpt-5-mini-large": -1, "gpt": -1, "": -1, "claude-sonnet-4-5-mini": -1, "claude-sonnet": -1, "gpt-5-2": -1, "GPT-5": -1, "my/gpt-5": -1, "model": -1,
		"gpt-5-20259": -1, "claude-sonnet-4-5-v1": -1, "gpt-5 ": -1, "ft:gpt-5": -1, "gpt-image-1": -1,
	} {
		got, ok := p.find(name)
		if ok != (input >= 0) || ok && got.Input != input {
			t.Errorf("%q: %v for input, %v, want %v", name, got.Input, ok, input)
		}
	}
	if got, _ := p.find("gpt-5", "house/model"); got.Input != 2 {
		t.Error("the project's price of the name that was asked for comes before the table's of the answer's")
	}
}

func TestCost(t *testing.T) {
	p := price{rates: rates{Input: 10, Output: 50, CacheRead: 1, CacheWrite: 12, CacheWrite1h: 20}, Long: &longRates{Above: 1e6, rates: rates{Input: 20, Output: 75, CacheRead: 2, CacheWrite: 25}}, Fast: 2}
	const m = 1e6
	for name, c := range map[string]struct {
		t    tokens
		usd  float64
		ok   bool
		with price
	}{
		"nothing":     {tokens{}, 0, true, p},
		"all":         {tokens{input: m / 10, output: m, cacheRead: m / 10, cacheWrite: m / 5, cacheWrite1h: m / 10}, 1 + 50 + .1 + 1.2 + 2, true, p},
		"long":        {tokens{input: 1, cacheRead: m, output: m}, 20e-6 + 2 + 75, true, p},
		"fast":        {tokens{output: m, fast: true}, 100, true, p},
		"flex":        {tokens{output: m, flex: true}, 0, false, p},
		"search":      {tokens{searches: 1}, 0, false, p},
		"unpriced":    {tokens{unpriced: true}, 0, false, p},
		"no cache's":  {tokens{cacheRead: m, cacheWrite: m}, 6, true, price{rates: rates{Input: 3}}},
		"free":        {tokens{input: m, cacheRead: m, output: m}, 0, true, price{}},
		"no 1h price": {tokens{cacheWrite: m, cacheWrite1h: m}, 4, true, price{rates: rates{Input: 3, CacheWrite: 4}}},
	} {
		if usd, ok := c.with.cost(c.t); ok != c.ok || ok && (usd-c.usd > 1e-9 || c.usd-usd > 1e-9) {
			t.Errorf("%s: %v, %v, want %v", name, usd, ok, c.usd)
		}
	}
}

// TestPriceTable: every price is a price, and the file says from when and where it is.
func TestPriceTable(t *testing.T) {
	var table priceTable
	if err := json.Unmarshal(pricesJSON, &table); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.DateOnly, table.Date); err != nil || table.Source == "" || len(table.Groups) == 0 {
		t.Errorf("date %q, source %q", table.Date, table.Source)
	}
	sane := func(name string, r rates) {
		if r.Input <= 0 && r.Output <= 0 || r.Input < 0 || r.Input > 1000 || r.Output < 0 || r.Output > 1000 || r.CacheRead < 0 || r.CacheRead > r.Input || r.CacheWrite < 0 || r.CacheWrite > 2*r.Input || r.CacheWrite1h > 2*r.Input+1e-9 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, g := range table.Groups {
		if g.Source == "" {
			t.Error("a group without a source")
		}
		for name, p := range g.Models {
			sane(name, p.rates)
			if p.Long != nil {
				sane(name, p.Long.rates)
				if p.Long.Above < 10000 || p.Long.Input < p.Input || p.Long.Output < p.Output {
					t.Errorf("%s: long %+v", name, p.Long)
				}
			}
		}
	}
}

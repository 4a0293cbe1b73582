package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestShapes(t *testing.T) {
	const chat = `{"model":"gpt-5-mini","stream":true,"messages":[{"b":2,"a":1}]}`
	for name, c := range map[string]struct {
		path, body string
		kind       string // of the answer
		answer     string
		want       workorder.Usage
		usd        float64
	}{
		"message": {
			"/anthropic/messages", ask1, "application/json",
			`{"type":"message","model":"claude-opus-5-5","usage":{"input_tokens":10,"output_tokens":20,"cache_read_input_tokens":30,"cache_creation_input_tokens":40,"server_tool_use":{"web_search_requests":2}}}`,
			workorder.Usage{InputTokens: 10, OutputTokens: 20, CacheReadTokens: 30, CacheWriteTokens: 40},
			(10*4+20*20+30*.2+40*5)/1e6 + .02,
		},
		"fast message": {
			"/anthropic/v1/messages", ask1, "application/json", `{"type":"message","model":"claude-opus-5-5","usage":{"input_tokens":10,"output_tokens":20,"speed":"fast"}}`,
			workorder.Usage{InputTokens: 10, OutputTokens: 20},
			2 * (10*4 + 20*20) / 1e6,
		},
		"message with an uncounted tool": {
			"/anthropic/v1/messages", ask1, "application/json", `{"type":"message","model":"claude-opus-5-5","usage":{"input_tokens":10,"output_tokens":20,"server_tool_use":{"robots":1}}}`,
			workorder.Usage{InputTokens: 10, OutputTokens: 20},
			-1,
		},
		"compacted": {
			"/anthropic/v1/messages", ask1, "application/json",
			`{"type":"message","model":"claude-sonnet-5-5","usage":{"input_tokens":10,"output_tokens":20,"iterations":[{"type":"compaction","input_tokens":100,"output_tokens":5},{"type":"message","input_tokens":10,"output_tokens":20}]}}`,
			workorder.Usage{InputTokens: 110, OutputTokens: 25},
			(110*2 + 25*10) / 1e6,
		},
		"chat": {
			"/openai/v1/chat/completions", `{"model":"gpt-5-mini","messages":[]}`, "application/json; charset=utf-8",
			`{"object":"chat.completion","model":"gpt-5-mini-2025-08-07","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":5}}}`,
			workorder.Usage{InputTokens: 40, OutputTokens: 20, CacheReadTokens: 60},
			(40*.25 + 20*2 + 60*.025) / 1e6,
		},
		"chat stream": {
			"/openai/v1/chat/completions", chat, "text/event-stream",
			"data: {\"model\":\"gpt-5-mini\",\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}\r\n\r\ndata: {\"model\":\"gpt-5-mini\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":20}}\r\n\r\ndata: [DONE]\r\n\r\n",
			workorder.Usage{InputTokens: 100, OutputTokens: 20},
			(100*.25 + 20*2) / 1e6,
		},
		"data on several lines": {
			"/openai/v1/chat/completions", chat, "text/event-stream",
			"data: {\"model\":\"gpt-5-mini\",\r\ndata: \"usage\":{\"prompt_tokens\":100,\r\ndata: \"completion_tokens\":20}}\r\n\r\n",
			workorder.Usage{InputTokens: 100, OutputTokens: 20},
			(100*.25 + 20*2) / 1e6,
		},
		"completion": {
			"/openai/completions", `{"model":"gpt-5-mini"}`, "application/json", `{"model":"gpt-5-mini","usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			workorder.Usage{InputTokens: 1, OutputTokens: 2},
			(.25 + 4) / 1e6,
		},
		"embeddings": {
			"/openai/v1/embeddings", `{"model":"text-embedding-3-small","input":"x"}`, "application/json",
			`{"object":"list","data":[],"model":"text-embedding-3-small","usage":{"prompt_tokens":50,"total_tokens":50}}`,
			workorder.Usage{InputTokens: 50},
			50 * .02 / 1e6,
		},
		"response": {
			"/openai/v1/responses", `{"model":"gpt-6.1-sol"}`, "application/json",
			`{"object":"response","model":"gpt-6.1-sol-2026-09-29","service_tier":"default","output":[{"type":"web_search_call"}],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":50,"cache_write_tokens":20},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":4}}}`,
			workorder.Usage{InputTokens: 30, OutputTokens: 10, CacheReadTokens: 50, CacheWriteTokens: 20},
			(30*2+10*10+50*.1+20*2.5)/1e6 + .01,
		},
		"response stream": {
			"/openai/v1/responses", `{"model":"gpt-6.1-sol","stream":true}`, "text/event-stream",
			"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"model\":\"gpt-6.1-sol\",\"usage\":null}}\n\nevent: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n" +
				"event: response.incomplete\ndata: {\"type\":\"response.incomplete\",\"response\":{\"model\":\"gpt-6.1-sol\",\"service_tier\":\"flex\",\"usage\":{\"input_tokens\":300000,\"output_tokens\":10}}}\n\n",
			workorder.Usage{InputTokens: 300000, OutputTokens: 10},
			.5 * (300000*4 + 10*15) / 1e6,
		},
		"response with an uncounted tool": {
			"/openai/v1/responses", `{"model":"gpt-6.1-sol"}`, "application/json",
			`{"model":"gpt-6.1-sol","output":[{"type":"code_interpreter_call"}],"usage":{"input_tokens":1,"output_tokens":1}}`,
			workorder.Usage{InputTokens: 1, OutputTokens: 1},
			-1,
		},
		"unknown model": {
			"/openai/v1/chat/completions", `{"model":"mystery"}`, "application/json", `{"model":"mystery","usage":{"prompt_tokens":3,"completion_tokens":4}}`,
			workorder.Usage{InputTokens: 3, OutputTokens: 4},
			-1,
		},
		"own price": {
			"/openai/v1/chat/completions", `{"model":"mine"}`, "application/json", `{"model":"gpt-5","usage":{"prompt_tokens":3,"completion_tokens":4}}`,
			workorder.Usage{InputTokens: 3, OutputTokens: 4},
			0,
		},
		"error with the status of a success": {
			"/anthropic/v1/messages", ask1, "text/event-stream", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", workorder.Usage{}, 0,
		},
		"error in the middle": {
			"/anthropic/v1/messages", ask1, "text/event-stream", strings.Join(anthropicEvents(5, 0)[:2], "\n\n") + "\n\nevent: error\ndata: {\"type\":\"error\"}\n\n",
			workorder.Usage{InputTokens: 5, OutputTokens: 6, CacheReadTokens: 100, CacheWriteTokens: 30},
			(5*3 + 6*15 + 100*.3 + 10*3.75 + 20*6) / 1e6,
		},
		"failed response": {
			"/openai/v1/responses", `{"model":"gpt-5"}`, "text/event-stream", "data: {\"type\":\"response.failed\",\"response\":{\"model\":\"gpt-5\",\"usage\":null}}\n\n", workorder.Usage{}, 0,
		},
		"no usage":   {"/openai/v1/chat/completions", `{"model":"gpt-5"}`, "application/json", `{"model":"gpt-5"}`, workorder.Usage{}, -1},
		"wrong type": {"/anthropic/v1/messages", ask1, "text/html", `<html>`, workorder.Usage{}, -1},
		"negative": {
			"/anthropic/v1/messages", ask1, "application/json", `{"type":"message","model":"claude-opus-5-5","usage":{"input_tokens":-10,"output_tokens":20}}`, workorder.Usage{}, -1,
		},
		"absurd": {
			"/openai/v1/chat/completions", `{"model":"gpt-5"}`, "application/json", `{"model":"gpt-5","usage":{"prompt_tokens":3,"completion_tokens":9223372036854775807}}`, workorder.Usage{}, -1,
		},
		"more cached than there is": {
			"/openai/v1/responses", `{"model":"gpt-5"}`, "application/json", `{"model":"gpt-5","usage":{"input_tokens":3,"output_tokens":1,"input_tokens_details":{"cached_tokens":4}}}`, workorder.Usage{}, -1,
		},
		"text as numbers": {
			"/openai/v1/responses", `{"model":"gpt-5"}`, "application/json", `{"model":"gpt-5","usage":{"input_tokens":"3"}}`, workorder.Usage{}, -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.answer)
			}, func(c *ModelsConfig) { c.Gateway.Prices = map[string]workorder.ModelPrice{"mine": {}} })
			status, got, _ := b.post(c.path, c.body)
			if status != 200 || got != c.answer {
				t.Fatalf("%d %s", status, got)
			}
			b.wants(c.want, 1, c.usd)
			b.Stop()
			l := b.lines()[0]
			if l.Input != c.want.InputTokens || l.Output != c.want.OutputTokens || (l.CostUSD == nil) != (c.usd < 0) || l.Status != 200 {
				t.Errorf("audit %+v", l)
			}
		})
	}
}

// TestUsageIsAskedFor: a stream of chat completions has the usage only when it is asked for.
func TestUsageIsAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { sse(w) }, nil)
	for body, want := range map[string]string{
		`{"stream":true,"model":"m","messages":[{"b":1.0,"a":"\u0041"}]}`: `{"stream":true,"model":"m","messages":[{"b":1.0,"a":"\u0041"}],"stream_options":{"include_usage":true}}`,
		`{"stream_options":{"include_usage":false,"x":1},"stream":true}`:  `{"stream_options":{"include_usage":true,"x":1},"stream":true}`,
		`{"stream_options":null,"stream":true}`:                           `{"stream_options":{"include_usage":true},"stream":true}`,
		`{"stream_options":{"include_usage":true},"stream":true} `:        `{"stream_options":{"include_usage":true},"stream":true} `,
		`{"stream":false}`: `{"stream":false}`,
	} {
		b.post("/openai/v1/chat/completions", body)
		if got := b.bodies[len(b.bodies)-1]; got != want {
			t.Errorf("%s became %s", body, got)
		}
	}
}

package harness

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestUnknownModel: a model that the provider does not know has a reason of its own, unless it has answered before.
func TestUnknownModel(t *testing.T) {
	t.Parallel()
	const used = `{"type":"result","subtype":"success","is_error":true,"api_error_status":404,"result":"model: claude-nope","num_turns":4,"usage":{"input_tokens":7}}`
	for name, tc := range map[string]struct {
		parser Parser
		line   string
		code   workorder.ReasonCode
	}{
		"claude":               {&claudeParser{}, `{"type":"result","subtype":"success","is_error":true,"api_error_status":404,"result":"There's an issue with the selected model (claude-nope)"}`, workorder.ReasonModelName},
		"claude, after a turn": {&claudeParser{}, used, ""},
		"claude, overloaded":   {&claudeParser{}, `{"type":"result","subtype":"success","is_error":true,"api_error_status":529,"result":"Overloaded"}`, ""},
		"codex":                {newCodexParser(), `{"type":"turn.failed","error":{"message":"{\"error\":{\"message\":\"The model ` + "`gpt-nope`" + ` does not exist or you do not have access to it.\",\"code\":\"model_not_found\"}}"}}`, workorder.ReasonModelName},
		"codex, bad request":   {newCodexParser(), `{"type":"turn.failed","error":{"message":"bad request"}}`, ""},
		"opencode":             {&opencodeParser{session: &conversation{}}, `{"type":"error","error":{"name":"APIError","data":{"message":"nope","statusCode":404}}}`, workorder.ReasonModelName},
		"opencode, its list":   {&opencodeParser{session: &conversation{}}, `{"type":"error","error":{"name":"UnknownError","data":{"message":"Model not found: anthropic/nope."}}}`, workorder.ReasonModelName},
		"opencode, overloaded": {&opencodeParser{session: &conversation{}}, `{"type":"error","error":{"name":"APIError","data":{"message":"busy","statusCode":529}}}`, ""},
	} {
		tc.parser.Line([]byte(tc.line))
		if out := tc.parser.End(Exit{Code: 1}); out.Verdict != Failed || out.Code != tc.code {
			t.Errorf("%s: %s %q, %s", name, out.Verdict, out.Code, out.Reason)
		}
	}
}

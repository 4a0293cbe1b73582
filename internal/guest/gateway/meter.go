package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
)

const (
	// maxLine bounds one line of a stream, in bytes; a longer line passes unread.
	maxLine = 16 << 20
	// maxJSON bounds an answer in one piece, in bytes; a longer one passes unread.
	maxJSON = 64 << 20
)

// meter reads a copy of an answer.
type meter struct {
	usageState
	shape  usageParser
	stream bool
	// off means that the meter cannot read the answer.
	off bool
	// line is the unfinished line of a stream; skip means that the rest of it is dropped.
	line []byte
	skip bool
	data []byte       // of the event so far
	hold *memoryShare // the memory of line and data
}

func newMeter(s usageParser, h http.Header, hold *memoryShare) *meter {
	m := &meter{shape: s, hold: hold}
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil && kind == "":
		m.off = true
	case kind == "text/event-stream":
		m.stream = true
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
	default:
		m.off = true
	}
	return m
}

func (m *meter) whole(b []byte) {
	if m.off {
		return
	}
	m.shape.object(&m.usageState, b)
}

// write reads a piece of a stream, split anywhere.
func (m *meter) write(p []byte) {
	for len(p) > 0 && !m.off {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		switch {
		case m.skip:
		case len(m.line)+len(part) > maxLine || (i < 0 || len(m.line) > 0) && !m.keep(len(part)):
			m.line, m.skip = nil, true
			m.bad = true
		case i >= 0 && len(m.line) == 0:
			m.endLine(part)
		default:
			m.line = append(m.line, part...)
			if i >= 0 {
				m.endLine(m.line)
				m.line = m.line[:0]
				if cap(m.line) > maxLine/16 {
					m.line = nil // do not keep the memory of one long line
				}
			}
		}
		if i < 0 {
			return
		}
		m.skip = false
		p = p[i+1:]
	}
}

// keep makes room for n more bytes of an unfinished line or event.
func (m *meter) keep(n int) bool {
	need := int64(cap(m.line) + cap(m.data) + 2*n) // an append may double
	return m.hold.resize((need + chunk) / chunk * chunk)
}

// endLine reads one line of a stream. An empty line ends an event; an event's data lines are joined.
func (m *meter) endLine(line []byte) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 {
		m.flush()
		return
	}
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return
	}
	data = bytes.TrimPrefix(data, []byte(" "))
	if len(m.data) == 0 && complete(data) {
		m.event(data)
		return
	}
	if len(m.data)+len(data) > maxLine || !m.keep(len(data)) {
		m.data, m.bad = nil, true
		return
	}
	m.data = append(append(m.data, data...), '\n')
}

// complete is a cheap check whether an event's data can be complete.
func complete(data []byte) bool {
	return len(data) > 1 && data[0] == '{' && data[len(data)-1] == '}' || string(data) == "[DONE]"
}

func (m *meter) flush() {
	if len(m.data) > 0 {
		m.event(m.data)
		m.data = nil
	}
}

func (m *meter) event(data []byte) {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		m.done = true
	}
	if len(data) > 0 && data[0] == '{' {
		m.shape.object(&m.usageState, data)
	}
}

func (m *meter) end() {
	if len(m.line) > 0 {
		m.endLine(m.line)
		m.line = nil
	}
	m.flush()
}

// maxTokens exceeds the use of any one call. A larger or negative number is no valid count.
const maxTokens = 1 << 30

// tokens are the normalised counts of one call: input without cached tokens, output with reasoning.
type tokens struct {
	input, output, cacheRead int64
	cacheWrite               int64 // both lifetimes
	cacheWrite1h             int64 // the long-lived part
	searches                 int64 // on the web, by the server
	fast, flex, usOnly       bool
	// unpriced means that the server did something that costs money and is not counted here.
	unpriced bool
}

func count(n int64) bool { return n >= 0 && n <= maxTokens }

func (t tokens) sane() bool {
	return count(t.input) && count(t.output) && count(t.cacheRead) && count(t.cacheWrite) && count(t.cacheWrite1h) &&
		t.cacheWrite1h <= t.cacheWrite && count(t.searches)
}

// usageState is what a meter has read of an answer so far.
type usageState struct {
	model string // as the answer names it
	tokens
	// prompt means that the prompt's tokens are known; final, that all are.
	prompt, final bool
	// done means that the answer reached its own end.
	done bool
	// hidden means that the model may have had thoughts that the answer does not show.
	hidden bool
	// id is the provider's name for the answer, by which it can be retrieved.
	id string
	// bad means that the answer has impossible counts; failed, that it reports an error.
	bad, failed bool
	// said is the text received so far, in bytes, to estimate an answer that was cut off.
	said int64
}

// usageParser understands the bodies of one API. object gets each JSON object of the answer, whole or one event.
type usageParser interface {
	object(r *usageState, b []byte)
}

// decode tolerates invalid JSON; the reading is bad only if the counts may be in it.
func (r *usageState) decode(b []byte, to any) bool {
	if err := json.Unmarshal(b, to); err != nil {
		r.bad = r.bad || bytes.Contains(b, []byte(`"usage"`))
		return false
	}
	return true
}

func (r *usageState) take(t tokens) bool {
	if !t.sane() {
		r.bad = true
		return false
	}
	r.tokens = t
	return true
}

type anthropicUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Creation   *struct {
		Hour int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Server    map[string]json.RawMessage `json:"server_tool_use"`
	Speed     string                     `json:"speed"`
	Geo       string                     `json:"inference_geo"`
	Iteration []struct {
		Type string `json:"type"`
		anthropicTokens
	} `json:"iterations"`
}

type anthropicTokens struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

type anthropicBody struct {
	Type    string          `json:"type"`
	Model   string          `json:"model"`
	Usage   *anthropicUsage `json:"usage"`
	Message *struct {
		Model string          `json:"model"`
		Usage *anthropicUsage `json:"usage"`
	} `json:"message"`
	Delta *struct {
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
		JSON     string `json:"partial_json"`
	} `json:"delta"`
	Block *struct {
		Type string `json:"type"`
	} `json:"content_block"`
}

// anthropicParser reads messages. Its stream begins with the prompt's tokens; later totals replace earlier ones.
type anthropicParser struct{ plain tokens }

func (s *anthropicParser) object(r *usageState, b []byte) {
	var o anthropicBody
	if !r.decode(b, &o) {
		return
	}
	switch o.Type {
	case "message_start":
		if o.Message != nil && o.Message.Usage != nil {
			r.model = o.Message.Model
			r.prompt = s.add(r, o.Message.Usage)
		}
	case "content_block_start":
		r.hidden = r.hidden || o.Block != nil && strings.Contains(o.Block.Type, "thinking")
	case "message_stop":
		r.done = true
	case "content_block_delta":
		if o.Delta != nil {
			r.said += int64(len(o.Delta.Text) + len(o.Delta.Thinking) + len(o.Delta.JSON))
		}
	case "message_delta":
		if o.Usage != nil {
			r.final = s.add(r, o.Usage)
		}
	case "error":
		r.failed = true
	case "message", "completion":
		r.model = o.Model
		if o.Usage != nil {
			r.final = s.add(r, o.Usage)
		}
	}
}

func (s *anthropicParser) add(r *usageState, u *anthropicUsage) bool {
	t := s.plain
	set := func(to *int64, from *int64) {
		if from != nil {
			*to = *from
		}
	}
	set(&t.input, u.Input)
	set(&t.output, u.Output)
	set(&t.cacheRead, u.CacheRead)
	set(&t.cacheWrite, u.CacheWrite)
	if u.Creation != nil {
		t.cacheWrite1h = u.Creation.Hour
	}
	t.fast = t.fast || u.Speed == "fast"
	t.usOnly = t.usOnly || u.Geo == "us"
	for name, raw := range u.Server {
		var n int64
		if json.Unmarshal(raw, &n) != nil || n == 0 {
			continue
		}
		switch name {
		case "web_search_requests":
			t.searches = n
		case "web_fetch_requests": // costs only its tokens
		default:
			t.unpriced = true
		}
	}
	if !t.sane() {
		r.bad = true
		return false
	}
	s.plain = t
	for _, i := range u.Iteration {
		// Compacting the conversation is billed but missing from the totals.
		if i.Type == "compaction" {
			if !count(i.Input) || !count(i.Output) || !count(i.CacheRead) || !count(i.CacheWrite) {
				r.bad = true
				return false
			}
			t.input += i.Input
			t.output += i.Output
			t.cacheRead += i.CacheRead
			t.cacheWrite += i.CacheWrite
		}
	}
	return r.take(t)
}

// openaiUsage is the usage of all of OpenAI's APIs. The prompt's tokens include the cached ones.
type openaiUsage struct {
	Prompt        *int64         `json:"prompt_tokens"`
	Completion    int64          `json:"completion_tokens"`
	PromptDetails *openaiDetails `json:"prompt_tokens_details"`
	Input         *int64         `json:"input_tokens"`
	Output        int64          `json:"output_tokens"`
	InputDetails  *openaiDetails `json:"input_tokens_details"`
}

type openaiDetails struct {
	Cached     int64 `json:"cached_tokens"`
	CacheWrite int64 `json:"cache_write_tokens"`
}

type openaiBody struct {
	ID       string          `json:"id"`
	Object   string          `json:"object"`
	Type     string          `json:"type"`
	Model    string          `json:"model"`
	Tier     string          `json:"service_tier"`
	Usage    *openaiUsage    `json:"usage"`
	Delta    json.RawMessage `json:"delta"`
	Error    json.RawMessage `json:"error"`
	Response *openaiResponse `json:"response"`
	Output   []openaiItem    `json:"output"`
	Choices  []struct {
		Delta json.RawMessage `json:"delta"`
		Text  string          `json:"text"`
	} `json:"choices"`
}

type openaiResponse struct {
	ID     string       `json:"id"`
	Model  string       `json:"model"`
	Tier   string       `json:"service_tier"`
	Usage  *openaiUsage `json:"usage"`
	Output []openaiItem `json:"output"`
}

type openaiItem struct {
	Type string `json:"type"`
}

type openaiParser struct{}

func (openaiParser) object(r *usageState, b []byte) {
	var o openaiBody
	if !r.decode(b, &o) {
		return
	}
	r.hidden = true // its models may hide their thoughts
	if o.Object == "response" {
		r.id = o.ID
	}
	if strings.HasPrefix(o.Type, "response.") { // an event of a response's stream
		if strings.HasSuffix(o.Type, ".delta") {
			r.said += int64(len(o.Delta))
		}
		if o.Response == nil {
			return
		}
		if o.Response.Model != "" {
			r.model = o.Response.Model
		}
		r.id = cmp.Or(o.Response.ID, r.id)
		switch o.Type {
		case "response.completed", "response.incomplete", "response.failed":
			r.failed, r.done = o.Type == "response.failed", true
			r.openai(o.Response.Usage, o.Response.Tier, o.Response.Output)
		}
		return
	}
	if o.Model != "" {
		r.model = o.Model
	}
	if o.Type == "error" || len(o.Error) > 0 && string(o.Error) != "null" {
		r.failed = true
	}
	for _, c := range o.Choices {
		r.said += int64(len(c.Delta) + len(c.Text))
	}
	r.openai(o.Usage, o.Tier, o.Output)
}

func (r *usageState) openai(u *openaiUsage, tier string, output []openaiItem) {
	if u == nil {
		return
	}
	in, out, d := u.Input, u.Output, u.InputDetails
	if in == nil {
		in, out, d = u.Prompt, u.Completion, u.PromptDetails
	}
	if in == nil {
		return
	}
	t := tokens{input: *in, output: out, fast: tier == "priority" || tier == "fast", flex: tier == "flex"}
	if d != nil {
		t.cacheRead, t.cacheWrite = d.Cached, d.CacheWrite
		t.input -= d.Cached + d.CacheWrite
	}
	for _, item := range output {
		switch item.Type {
		case "web_search_call":
			t.searches++
		case "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call":
			t.unpriced = true
		}
	}
	r.prompt = r.take(t)
	r.final = r.prompt
}

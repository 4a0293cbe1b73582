package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxSaid bounds the destinations that get events. A client that names more is scanning.
	maxSaid = 1000
	// maxNamed bounds the names in one refusal and one audit line.
	maxNamed = 5
	// toolsKey is the project file's key that allows the provider's tools.
	toolsKey  = "gateway: {provider_tools: true}"
	byGateway = "gateway"
)

// judge applies the network policy to requests: a fetch or a tool of the provider bypasses the box's own network.
type judge struct {
	mode  workorder.NetworkMode
	learn bool
	tools bool // the provider may run tools
	rules []workorder.AllowRule
	emit  func(workorder.Event) // nil to drop events

	mu   sync.Mutex
	said map[string]bool
}

func newJudge(n workorder.NetworkPolicy, g *workorder.Gateway, emit func(workorder.Event)) (*judge, error) {
	n.Mode = cmp.Or(n.Mode, workorder.NetworkFull)
	j := &judge{mode: n.Mode, learn: n.Learn, tools: g.RunsProviderTools(n.Mode), emit: emit, said: map[string]bool{}}
	for _, s := range n.Allow {
		r, err := workorder.ParseAllowRule(s)
		if err != nil {
			return nil, fmt.Errorf("model gateway: %w", err)
		}
		j.rules = append(j.rules, r)
	}
	return j, nil
}

// idle reports whether everything passes.
func (j *judge) idle() bool { return j.mode == workorder.NetworkFull && j.tools }

type verdict struct {
	name   string // name used in events
	status workorder.NetworkStatus
	reason string
	fix    string // the line of the project file that would allow it
	where  string // the key that fix belongs under; empty if none
}

// decide decides on one reach. The name is empty if the provider reaches nothing.
func (j *judge) decide(r reach) verdict {
	v := verdict{
		name: clean(r.what), reason: "the provider would run or fetch it, outside the sandbox", fix: toolsKey, status: workorder.NetworkRefused,
	}
	switch {
	case r.what != "" && j.tools:
		return verdict{}
	case r.what != "":
	case r.url == "" || len(r.url) >= 5 && strings.EqualFold(r.url[:5], "data:") || j.mode == workorder.NetworkFull:
		return verdict{}
	default:
		v = j.fetch(r.url)
	}
	if v.status == workorder.NetworkRefused && j.learn {
		v.status = workorder.NetworkLearned
	}
	return v
}

// fetch applies the policy to a URL as to a connection to its host.
func (j *judge) fetch(raw string) verdict {
	host, port, ok := target(raw)
	if !ok {
		return verdict{
			name: "URL " + clean(raw), status: workorder.NetworkRefused,
			reason: "the provider would fetch it, and parsers disagree about its host: use http or https, a host, and no user",
		}
	}
	v := verdict{name: net.JoinHostPort(host, strconv.Itoa(int(port))), status: workorder.NetworkAllowed}
	if slices.ContainsFunc(j.rules, func(r workorder.AllowRule) bool { return r.Match(host, port) }) {
		return v
	}
	v.status, v.reason = workorder.NetworkRefused, "the provider would fetch from it, and no rule of network.allow covers it"
	rule := workorder.AllowRuleFor(host, port)
	if _, err := workorder.ParseAllowRule(rule.String()); err == nil && j.mode == workorder.NetworkRestricted {
		v.fix, v.where = rule.Line(), " under network.allow"
	}
	return v
}

// target returns a URL's host and port if all parsers read the URL the same way.
func target(raw string) (host string, port uint16, ok bool) {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || u.Opaque != "" {
		return "", 0, false
	}
	switch u.Scheme {
	case "http":
		port = 80
	case "https":
		port = 443
	default:
		return "", 0, false
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", 0, false
		}
		port = uint16(n)
	} else if strings.HasSuffix(u.Host, ":") {
		return "", 0, false
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return a.Unmap().WithZone("").String(), port, a.Zone() == ""
	}
	host = workorder.CanonicalHost(u.Hostname())
	return host, port, workorder.ValidHostName(host)
}

// say emits an event, only the first of its kind.
func (j *judge) say(v verdict) {
	if j.emit == nil {
		return
	}
	key := string(v.status) + " " + v.name
	j.mu.Lock()
	known := j.said[key] || len(j.said) >= maxSaid
	if !known {
		j.said[key] = true
	}
	j.mu.Unlock()
	if !known {
		j.emit(workorder.Event{Type: workorder.EventNetwork, Name: v.name, Status: string(v.status), By: byGateway, Text: v.reason, Fix: v.fix})
	}
}

// police refuses a request by which the provider would reach destinations that the box must not reach.
func (c *call) police() *refusal {
	j := c.m.judge
	if j.idle() || c.r.Method != http.MethodPost || len(c.ask.body) == 0 {
		return nil
	}
	var err error
	if !c.ask.op.metered { // a metered body was read already
		_, err = parseBody(c.ask.body)
	}
	var found []reach
	if err == nil {
		found, err = scan(c.ask.body)
	}
	if err != nil {
		return &refusal{
			status: http.StatusBadRequest, kind: "bad_request",
			text: fmt.Sprintf("the network policy cannot be applied to the body of %s %s: %v", c.ask.op.method, c.ask.path, err),
		}
	}
	var no, fixes []string
	for _, r := range found {
		v := j.decide(r)
		if v.name == "" {
			continue
		}
		j.say(v)
		few(&c.line.Reaches, v.name)
		if v.status == workorder.NetworkRefused {
			few(&no, v.name+" ("+v.reason+")")
			if v.fix != "" {
				few(&fixes, "`"+v.fix+"`"+v.where)
			}
		}
	}
	if len(no) == 0 {
		return nil
	}
	text := fmt.Sprintf("the network policy of this sandbox (network: %s) refuses what the request has: %s.", j.mode, strings.Join(no, "; "))
	if len(fixes) > 0 {
		text += " The project file would allow it by " + strings.Join(fixes, " and ") + "."
	}
	return &refusal{status: http.StatusBadRequest, kind: "network", text: text}
}

// few returns the first distinct values.
func few(list *[]string, s string) {
	if len(*list) < maxNamed && !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

// maxReaches bounds the reaches collected from one request.
const maxReaches = 10_000

var errReaches = errors.New("it names too many URLs, files and tools")

// clientTools are the types of tools that the client runs, and of the provider's tools that see only the request, the
// organisation's stores or another model. Source: BetaToolUnionParam of anthropic-sdk-go v1.84.0, ToolUnionParam of
// openai-go v3.95.0. Every other type counts as run by the provider.
var clientTools = lazyregexp.New(
	`^(?:custom|function|namespace|apply_patch|local_shell|shell|computer|computer_use|computer_use_preview|file_search|` +
		`image_generation|tool_search|` +
		`(?:bash|text_editor|computer|computer_toolset|browser_toolset|memory|advisor|tool_search_tool_bm25|` +
		`tool_search_tool_regex)(?:_[0-9]{8})?|` +
		`tool_reference|mcp_tool_reference|mcp_toolset_reference|tool_definition)$`,
)

// cachedSearch are tools that reach nothing with external_web_access: false.
var cachedSearch = []string{"web_search", "web_search_2025_08_26"}

// searching are models that search the web without a tool (OpenAI's, and any at OpenRouter).
var searching = lazyregexp.New(`(?i)-search-(?:preview|api)|:online$`)

// fields are a request's own fields that make the provider, or a proxy in front of it, reach out.
var fields = []string{"mcp_servers", "web_search_options", "plugins", "search_parameters", "enable_search"}

// toolFields are fields that make a tool one of the provider's, whatever its type: of MCP and of Google.
var toolFields = []string{
	"server_url", "connector_id", "google_search", "googlesearch", "google_search_retrieval", "googlesearchretrieval", "url_context",
	"urlcontext", "code_execution", "codeexecution", "enterprise_web_search", "enterprisewebsearch", "google_maps", "googlemaps",
}

// urlFields are fields that contain a URL, or an object with one.
var urlFields = []string{"image_url", "file_url", "video_url", "audio_url"}

// fileFields are fields whose object is a file; fileTypes are the types of such objects.
var (
	fileFields = []string{"file", "source", "input_image_mask"}
	fileTypes  = []string{"file", "input_file", "input_image", "container_upload"}
)

// opaque are fields with the client's own values: JSON schemas, and examples for them.
var opaque = []string{"input_schema", "output_schema", "parameters", "schema", "input_examples", "metadata"}

// uses are the blocks whose field input is the model's input to a tool.
var uses = []string{"tool_use", "server_tool_use", "mcp_tool_use"}

// reach is a part of a request that makes the provider reach out.
type reach struct {
	// what is a tool, a field or a model; empty for a URL.
	what, url string
}

// scan finds the parts of a request that make the provider reach out. raw is valid JSON.
func scan(raw []byte) ([]reach, error) {
	s := scanner{raw: raw}
	s.value(space(raw, 0), jsonPos{})
	if s.over {
		return nil, errReaches
	}
	return s.found, nil
}

type scanner struct {
	raw   []byte
	found []reach
	over  bool // there were more than maxReaches
}

type jsonPos struct {
	field string // the innermost field that it belongs to
	item  bool   // it is an item of the field's list
	depth int    // of objects
}

type jsonObject struct {
	kind   string // its type
	kinds  int
	urls   []string
	file   bool
	named  bool
	by     string // one of toolFields
	cached bool   // external_web_access is false
	live   bool   // external_web_access has another value
	remote bool   // it has an environment that is not local
}

func (s *scanner) note(r reach) {
	if s.over = s.over || len(s.found) == maxReaches; !s.over {
		s.found = append(s.found, r)
	}
}

// value steps over a value and examines it.
func (s *scanner) value(i int, at jsonPos) (end int) {
	switch s.raw[i] {
	case '{':
		return s.object(i, at)
	case '[':
		at.item = true
		for i = space(s.raw, i+1); s.raw[i] != ']'; {
			if s.raw[i] == ',' {
				i = space(s.raw, i+1)
			}
			i = space(s.raw, s.value(i, at))
		}
		return i + 1
	}
	return endOfValue(s.raw, i)
}

func (s *scanner) object(i int, at jsonPos) (end int) {
	var t jsonObject
	from, to := 0, 0 // range of the reaches found in the field input
	for i = space(s.raw, i+1); s.raw[i] != '}'; {
		if s.raw[i] == ',' {
			i = space(s.raw, i+1)
		}
		start := i
		i = endOfString(s.raw, i)
		name := fieldName(s.raw[start:i])
		i = space(s.raw, space(s.raw, i)+1) // over the colon
		start = i
		before := len(s.found)
		if slices.Contains(opaque, name) || name == "mcp_servers" && at.depth == 0 { // mcp_servers counts as a whole
			i = endOfValue(s.raw, i)
		} else {
			i = s.value(i, jsonPos{field: name, depth: at.depth + 1})
		}
		if name == "input" {
			from, to = before, len(s.found)
		}
		s.field(&t, name, s.raw[start:i], at.depth)
		i = space(s.raw, i)
	}
	if slices.Contains(uses, t.kind) && t.kinds == 1 {
		s.found = slices.Delete(s.found, from, to)
	}
	s.typedObject(&t, at)
	return i + 1
}

func (s *scanner) field(t *jsonObject, name string, v []byte, depth int) {
	if string(v) == "null" {
		return
	}
	switch name {
	case "type":
		t.kind = textOf(v)
		t.kinds++
	case "url":
		t.urls = append(t.urls, textOf(v))
	case "file_id":
		t.file = true
	case "file_data": // base64; some proxies accept a URL
		if u := textOf(v[:min(len(v), maxText)]); strings.Contains(u, "://") {
			s.note(reach{url: u})
		}
	case "name", "function":
		t.named = true
	case "external_web_access":
		t.cached, t.live = true, t.live || string(v) != "false"
	case "environment":
		var e struct{ Type string }
		t.remote = t.remote || json.Unmarshal(v, &e) != nil || e.Type != "local"
	case "prompt":
		if depth == 0 && v[0] == '{' {
			s.note(reach{what: "prompt, a stored one, which can bring tools"})
		}
	case "model":
		if depth == 0 && searching.MatchString(textOf(v)) {
			s.note(reach{what: "model " + textOf(v)})
		}
	}
	if v[0] == '"' && slices.Contains(urlFields, name) {
		s.note(reach{url: textOf(v)})
	}
	if slices.Contains(toolFields, name) {
		t.by = name
	}
	if depth == 0 && slices.Contains(fields, name) && string(v) != "false" && !emptyList(v) {
		s.note(reach{what: "field " + name})
	}
}

// typedObject decides on an object by all of its fields.
func (s *scanner) typedObject(t *jsonObject, at jsonPos) {
	if t.kinds > 1 {
		s.note(reach{what: "field type, given twice in one object"})
	}
	if strings.EqualFold(t.kind, "url") || slices.Contains(urlFields, at.field) {
		for _, u := range t.urls {
			s.note(reach{url: u})
		}
	}
	if t.file && (slices.Contains(fileTypes, t.kind) || slices.Contains(fileFields, at.field)) {
		s.note(reach{what: "file of the organisation"})
	}
	if at.field != "tools" && at.field != "tool" && at.field != "definition" {
		return
	}
	switch {
	case t.by != "":
		s.note(reach{what: "tool with " + t.by})
	case t.kind == "" && t.kinds == 0 && t.named:
	case t.kind == "":
		s.note(reach{what: "tool without type and name"})
	case slices.Contains(cachedSearch, t.kind) && t.cached && !t.live:
	case t.kind == "shell" && t.remote, !clientTools.MatchString(t.kind):
		s.note(reach{what: "tool " + t.kind})
	}
}

// fieldName is a field's name in lower case, because some servers ignore case.
func fieldName(quoted []byte) string {
	plain := true
	for _, c := range quoted {
		if c == '\\' || c >= 0x80 || 'A' <= c && c <= 'Z' {
			plain = false
			break
		}
	}
	name := string(quoted[1 : len(quoted)-1])
	if plain {
		return name
	}
	_ = json.Unmarshal(quoted, &name)
	return strings.ToLower(strings.ToUpper(name)) // matches the case folding of encoding/json
}

// textOf is a JSON value as text: a string, or the beginning of any other value.
func textOf(v []byte) string {
	if len(v) > maxText { // of a long text only the prefix data: matters
		return string(bytes.TrimPrefix(v[:maxText], []byte(`"`)))
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		return string(bytes.TrimPrefix(v, []byte(`"`)))
	}
	return s
}

func emptyList(v []byte) bool { return v[0] == '[' && v[space(v, 1)] == ']' }

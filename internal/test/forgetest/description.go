package forgetest

import (
	"bytes"
	_ "embed" // the description
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// excerpt is the OpenAPI document that requests and answers are checked against.
//
//go:embed testdata/github-rest.octokit-openapi-23.0.2.json
var excerpt []byte

// place is where the document lives for the validator.
const place = "mem:///github.json"

type object = map[string]any

// description checks and makes documents by the OpenAPI description.
type description struct {
	doc     object
	ops     []*operation
	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema
	comp    *jsonschema.Compiler
}

type operation struct {
	id, method string
	segments   []string
	pointer    string // of the operation in the document
	def        object
}

var load = sync.OnceValue(func() *description {
	d := &description{schemas: map[string]*jsonschema.Schema{}, comp: jsonschema.NewCompiler()}
	must(json.Unmarshal(excerpt, &d.doc))
	for path, item := range d.doc["paths"].(object) {
		for method, def := range item.(object) {
			def := def.(object)
			d.ops = append(d.ops, &operation{
				id: def["operationId"].(string), method: strings.ToUpper(method), def: def,
				segments: strings.Split(strings.Trim(path, "/"), "/"),
				pointer:  "/paths/" + escape(path) + "/" + method,
			})
			if body, ok := def["requestBody"].(object); ok {
				closeObjects(body)
			}
		}
	}
	// The copy for the validator, in which nullable is what it means in JSON Schema.
	copied := clone(d.doc)
	d.comp.DefaultDraft(jsonschema.Draft4)
	must(d.comp.AddResource(place, nullable(copied)))
	return d
})

// must is for the embedded document, which a test reads before anybody uses it.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func escape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

func clone(v any) any {
	data, err := json.Marshal(v)
	must(err)
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	must(err)
	return out
}

// closeObjects refuses properties that the description does not have. GitHub ignores
// them, which is how a mistyped field goes unnoticed.
func closeObjects(v any) {
	switch v := v.(type) {
	case object:
		if _, ok := v["properties"].(object); ok && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		for _, e := range v {
			closeObjects(e)
		}
	case []any:
		for _, e := range v {
			closeObjects(e)
		}
	}
}

func nullable(v any) any {
	switch v := v.(type) {
	case object:
		for k, e := range v {
			v[k] = nullable(e)
		}
		if v["nullable"] == true {
			delete(v, "nullable")
			return object{"anyOf": []any{object{"type": "null"}, v}}
		}
	case []any:
		for i, e := range v {
			v[i] = nullable(e)
		}
	}
	return v
}

// find is the operation for a path below the API, with the values in it. A literal part wins over a parameter.
func (d *description) find(method, path string) (best *operation, params map[string]string, allowed bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	score := -1
	for _, op := range d.ops {
		if len(op.segments) != len(parts) {
			continue
		}
		vals, n := map[string]string{}, 0
		for i, s := range op.segments {
			if strings.HasPrefix(s, "{") {
				v, err := url.PathUnescape(parts[i])
				if err != nil || v == "" {
					n = -1
					break
				}
				vals[strings.Trim(s, "{}")] = v
			} else if n++; s != parts[i] {
				n = -1
				break
			}
		}
		if n < 0 {
			continue
		}
		allowed = true
		if op.method == method && n > score {
			best, params, score = op, vals, n
		}
	}
	return best, params, allowed
}

// check validates a value against the schema at a pointer.
func (d *description) check(pointer string, v any) error {
	d.mu.Lock()
	s, ok := d.schemas[pointer]
	if !ok {
		var err error
		if s, err = d.comp.Compile(place + "#" + pointer); err != nil {
			d.mu.Unlock()
			return err
		}
		d.schemas[pointer] = s
	}
	d.mu.Unlock()
	return s.Validate(v)
}

func (d *description) checkQuery(op *operation, q url.Values) error {
	known := map[string]string{}
	params, _ := op.def["parameters"].([]any)
	for i, p := range params {
		pointer := fmt.Sprintf("%s/parameters/%d", op.pointer, i)
		def := p.(object)
		if ref, ok := def["$ref"].(string); ok {
			pointer, def = strings.TrimPrefix(ref, "#"), d.resolve(ref)
		}
		if def["in"] == "query" {
			known[def["name"].(string)] = pointer
		}
	}
	for name, values := range q {
		pointer, ok := known[name]
		if !ok {
			return fmt.Errorf("the description has no parameter %q", name)
		}
		for _, v := range values {
			var val any = v
			if _, err := strconv.ParseInt(v, 10, 64); err == nil && (name == "page" || name == "per_page") {
				val = json.Number(v)
			}
			if err := d.check(pointer+"/schema", val); err != nil {
				return fmt.Errorf("parameter %s: %w", name, err)
			}
		}
	}
	return nil
}

func (d *description) checkRequest(op *operation, body []byte) error {
	def, ok := op.def["requestBody"].(object)
	if !ok {
		if len(bytes.TrimSpace(body)) > 0 {
			return fmt.Errorf("the description has no body for %s", op.id)
		}
		return nil
	}
	if len(body) == 0 && def["required"] != true {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	return d.check(op.pointer+"/requestBody/content/application~1json/schema", v)
}

// response finds the definition of an answer, and whether it has one.
func (d *description) response(op *operation, status int) (pointer string, def object, ok bool) {
	pointer = op.pointer + "/responses/" + strconv.Itoa(status)
	def, ok = op.def["responses"].(object)[strconv.Itoa(status)].(object)
	if ref, isRef := def["$ref"].(string); isRef {
		pointer, def = strings.TrimPrefix(ref, "#"), d.resolve(ref)
	}
	return pointer, def, ok
}

// checkResponse validates one of our answers. Refusals that the description does not list (401,
// limits, outages) have any form.
func (d *description) checkResponse(op *operation, status int, body []byte) error {
	pointer, def, ok := d.response(op, status)
	if !ok {
		if status < http.StatusBadRequest {
			return fmt.Errorf("the description has no status %d for %s", status, op.id)
		}
		return nil
	}
	content, _ := def["content"].(object)
	if content["application/json"] == nil {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return d.check(pointer+"/content/application~1json/schema", v)
}

func (d *description) resolve(ref string) object {
	var v any = d.doc
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		v = v.(object)[strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")]
	}
	return v.(object)
}

// sample makes the smallest document of a named schema, with the given properties over it.
func (d *description) sample(schema string, over object) object {
	out, _ := d.make(object{"$ref": "#/components/schemas/" + schema}).(object)
	maps.Copy(out, over)
	return out
}

func (d *description) make(s object) any {
	if ref, ok := s["$ref"].(string); ok {
		s = d.resolve(ref)
	}
	if s["nullable"] == true {
		return nil
	}
	if e, ok := s["enum"].([]any); ok {
		return e[0]
	}
	if all, ok := s["allOf"].([]any); ok {
		out := object{}
		for _, part := range all {
			if m, ok := d.make(part.(object)).(object); ok {
				maps.Copy(out, m)
			}
		}
		return out
	}
	for _, k := range []string{"oneOf", "anyOf"} {
		if list, ok := s[k].([]any); ok {
			return d.make(list[0].(object))
		}
	}
	switch s["type"] {
	case "array":
		return []any{}
	case "integer", "number":
		return 0
	case "boolean":
		return false
	case "string":
		return map[any]string{"uri": "http://forge.invalid/", "date-time": "2026-01-02T03:04:05Z"}[s["format"]]
	}
	out := object{}
	required, _ := s["required"].([]any)
	props, _ := s["properties"].(object)
	for _, name := range required {
		if p, ok := props[name.(string)].(object); ok {
			out[name.(string)] = d.make(p)
		}
	}
	return out
}

package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// environmentID is the argument that names an environment.
const environmentID = "environment_id"

// schemaOf returns the schema of a tool's arguments. In a single environment, the client need not name it, except to open another.
func schemaOf[A any](single bool) *jsonschema.Schema {
	s, err := jsonschema.For[A](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Shell](): {Type: "string", Description: strings.Join(sandbox.Shells, ", ")},
		reflect.TypeFor[sandbox.NetworkMode](): {Type: "string", Enum: []any{
			sandbox.NetworkFull, sandbox.NetworkRestricted,
			sandbox.NetworkNone,
		}},
	}})
	if err != nil {
		panic(err) // A is a type of this package, and all of them are tried by tests
	}
	withoutNull(s)
	if single && reflect.TypeFor[A]() != reflect.TypeFor[openArguments]() {
		s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == environmentID })
	}
	return s
}

// withoutNull removes null from the types of arguments: models need not send it, and the servers of some refuse lists
// of types. Values of maps keep it.
func withoutNull(s *jsonschema.Schema) {
	if i := slices.Index(s.Types, "null"); i >= 0 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	for _, p := range s.Properties {
		withoutNull(p)
	}
}

// read decodes the arguments of a call.
func read(raw json.RawMessage, schema *jsonschema.Schema, to any) error {
	if len(raw) == 0 { // a client may leave them out
		raw = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return invalid(fmt.Errorf("arguments: %w", err))
	}
	var given map[string]*json.RawMessage
	_ = json.Unmarshal(raw, &given) // it has been decoded above
	for _, name := range schema.Required {
		if given[name] == nil && name != environmentID { // Sandboxes.Open lists the sandboxes
			return invalid(fmt.Errorf("arguments: %s is missing", name))
		}
	}
	return nil
}

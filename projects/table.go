package projects

import "github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"

// Short names of the engine's types, for the table of keys.
type (
	schema  = yamlkeys.Schema
	key     = yamlkeys.Key
	value   = yamlkeys.Value
	field   = yamlkeys.Field
	decoder = yamlkeys.Decoder
)

// JSONSchema returns the schema of the project file for editors, draft 2020-12. It accepts every valid project, and some
// invalid ones that only `project validate` can judge.
func JSONSchema() ([]byte, error) { return definition().JSONSchema("sandbox-agent project") }

// Markdown returns the reference of the project file: every key with its type, default and meaning.
func Markdown() string {
	return "# Keys of a project file\n\n" +
		"This page is made of the table that the program checks files by: `sandbox-agent project schema --markdown` prints it.\n" +
		"[How to write a project file](project-file.md) has an example with comments. `*` stands for a name that you choose, `[]` for each " +
		"entry of a list.\n\n" +
		definition().Markdown()
}

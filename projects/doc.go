// Package projects reads project files: the YAML that says what the sandbox has
// to know about a repository. One table (keys.go) defines every key; internal/yamlkeys
// makes decoding, hints and the JSON Schema of it, and `project show` follows it, too.
//
// All mistakes of a file are reported at once, each with its place. Values that
// are or look like secrets are never printed, not even in an excerpt.
//
// The package reads files and nothing else: it starts no process, opens no
// connection, and resolves no secret.
package projects

// Package projects reads project files, the YAML settings of a repository's tasks and sandboxes. One table (keys.go) defines
// every key, for decoding, hints, the JSON Schema and `project show`.
//
// An error lists all mistakes with their positions. Values that are or look like secrets are never printed. The package
// only reads files: it starts no process, opens no connection and resolves no secret. Its functions may be called
// concurrently; a Project may not be changed concurrently.
package projects

// Package guard is the socket that the box shows as /var/run/docker.sock: a
// filtering proxy in front of the inner Docker engine.
//
// The engine is root in the box. What keeps its clients from being root is that
// root in an inner container is the user sandbox, and the guard refuses what would
// undo that. Nothing passes that is not known: endpoints, query keys of a build, and
// fields of JSON bodies are in tables, and the engine is sent what was understood,
// written anew, never the client's bytes. Only streams that the engine does not read
// as requests pass unread.
//
// The guard never connects to the engine for a request that it refuses, because
// connecting is what starts it.
package guard

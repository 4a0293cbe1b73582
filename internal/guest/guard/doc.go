// Package guard serves the socket that the box shows as /var/run/docker.sock: a filtering proxy in front of
// the inner Docker engine.
//
// The engine is root in the box. Its clients do not become root, because root in an inner container is the
// user sandbox, and the guard refuses requests that would undo that. It passes only known requests:
// endpoints, query keys of a build, and fields of JSON bodies are in tables. The guard sends the engine only
// the parsed request, encoded again, never the client's bytes. Only streams that the engine does not parse as
// requests pass unread.
//
// The guard refuses a request without connecting to the engine, because connecting starts it. The exceptions
// depend on the engine's containers: the start of one with binds, and docker cp.
//
// Clients own the sources of binds and can replace them at any time. The engine never sees the sources: it
// gets mount points that only root can change, see points.
package guard

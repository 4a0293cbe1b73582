// Package guard is the socket that the box shows as /var/run/docker.sock: a
// filtering proxy in front of the inner Docker engine.
//
// The engine is root in the box. Its clients are kept from being root by one rule:
// root in an inner container is the user sandbox, and the guard refuses what would
// undo that. Nothing passes that is not known: endpoints, query keys of a build, and
// fields of JSON bodies are in tables, and the engine is sent what was understood,
// written anew, never the client's bytes. Only streams that the engine does not read
// as requests pass unread.
//
// The guard does not connect to the engine to refuse a request, because connecting is what
// starts it, unless what to say depends on containers that the engine has: the start of one with binds and docker cp.
//
// Sources of binds are the client's, who can put something else there at any time. The
// engine never sees them: it gets mount points that only root can change, see points.
package guard

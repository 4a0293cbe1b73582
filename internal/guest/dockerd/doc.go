// Package dockerd is the box's own Docker engine: it prepares the box
// (cgroups, mounts, storage driver, a data root free of stale state), runs its own
// containerd and dockerd, watches them and ends them in bounded time.
//
// This package owns the socket, not the daemon: the socket exists with its
// final owner and mode from Listen on, and clients connect at once and wait. Behind it
// the daemon may be started on first use or replaced after a crash.
//
// The package does not depend on services, images or the task.
package dockerd

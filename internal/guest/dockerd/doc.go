// Package dockerd is the box's own Docker engine: it makes the ground ready
// (cgroups, mounts, storage driver, a data root free of stale state), runs a
// containerd and a dockerd of its own, watches them and ends them in bounded time.
//
// The socket belongs to this package, not to the daemon: it exists with its
// final owner and mode from Listen on, clients connect at once and wait, and
// the daemon may be started on first use or replaced after a crash behind it.
//
// The package knows nothing of services, images or the task.
package dockerd

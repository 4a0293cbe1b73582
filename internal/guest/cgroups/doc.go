// Package cgroups divides the box's control groups, so that the agent cannot use up what boot, PID 1 and the inner engine need.
//
//	box               the root that all processes in the box see
//	├─ boot           PID 1, boot, rescue: no limit below the box's own
//	├─ engine         dockerd, containerd, the parents of inner containers
//	├─ git            git that boot runs as the agent's user: half of the reserved memory
//	└─ work           the agent's side: one limit of processes, one of memory
//	   ├─ agent       the agent, setup, checks, the browser
//	   └─ containers  inner containers
package cgroups

import "path/filepath"

// Groups, by their path below the root.
const (
	Boot       = "boot"
	Engine     = "engine"
	Git        = "git"
	Work       = "work"
	Agent      = Work + "/agent"
	Containers = Work + "/containers"
)

// all lists the groups, parents first.
var all = []string{Boot, Engine, Git, Work, Agent, Containers}

// Root is the mount point of the hierarchies.
const Root = "/sys/fs/cgroup"

// Limits are the limits of the agent's side.
type Limits struct {
	PIDs int64 // processes and threads; 0 for none
	// Reserve is the box's memory that the agent's side cannot use, in bytes, at most a quarter.
	Reserve int64
}

const (
	// enginePIDs bounds the engine's group: a container's parent has some ten threads.
	enginePIDs = 3072
	// gitPIDs bounds git as the agent's user: it may run a filter of the repository.
	gitPIDs = 512
	// gitShare is the fraction of the reserve (one half) for git as the agent's user; the rest is boot's.
	gitShare = 2
	// bootWeight is boot's share of a busy CPU, compared to 100 for each other group.
	bootWeight = 1000
	weight     = 100
)

// dir returns a group's directory in a hierarchy.
func dir(mount, group string) string { return filepath.Join(mount, group) }

// Package cgroups divides the box's control groups, so that what the agent starts can use up neither the
// processes, the memory nor the CPU that boot, PID 1 and the inner engine need.
//
//	box               the root that everybody in the box sees
//	├─ boot           PID 1, boot, rescue: no limit below the box's own
//	├─ engine         dockerd, containerd, the parents of inner containers
//	├─ git            git that boot runs as the agent's user: half of the memory that is kept from work
//	└─ work           the agent's side: one limit of processes, one of memory
//	   ├─ agent       the agent, setup, checks, the browser
//	   └─ containers  inner containers
//
// PID 1 divides them before anything else runs. The box then sees a cgroup namespace whose root is a group below the
// one that the outer engine made: no mount shows that one, so that its limits and its list of devices cannot be written.
package cgroups

import "path/filepath"

// The groups, by their path below the root.
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

// Root is where the hierarchies are mounted.
const Root = "/sys/fs/cgroup"

// Limits are those of the agent's side.
type Limits struct {
	PIDs int64 // processes and threads; 0 means none
	// Reserve is the memory of the box, in bytes, that the agent's side cannot have, at most a quarter of all.
	Reserve int64
}

const (
	// enginePIDs bounds the engine's group: a container's parent has some ten threads, and 250 containers at once are far more than a task has.
	enginePIDs = 3072
	// gitPIDs bounds git as the agent's user: a filter of the repository may run below it.
	gitPIDs = 512
	// gitShare is which part of the reserve git as the agent's user can have, filters of the repository with it: the rest is boot's own. git
	// maps what it reads, which takes no memory for good.
	gitShare = 2
	// bootWeight is boot's share of a busy CPU beside 100 for each of the others: what the box needs to land is little, and cannot wait.
	bootWeight = 1000
	weight     = 100
)

// dir is a group's folder in a hierarchy.
func dir(mount, group string) string { return filepath.Join(mount, group) }

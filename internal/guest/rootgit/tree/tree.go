// Package tree reads and commits the agent's work tree as root, and trusts none of its content.
package tree

import "github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"

// Tree has the parts that work on the agent's work tree, lowest first. They share it.
type Tree struct {
	*remote.Remote
	Work        *WorkTree
	Index       *Index
	Config      *AgentConfig
	Checkpoints *Checkpointer
	Committer   *Committer
}

// New returns the parts for the task's remote.
func New(r *remote.Remote) *Tree {
	t := &Tree{Remote: r, Work: &WorkTree{Remote: r}}
	t.Index, t.Config = &Index{Tree: t}, &AgentConfig{Tree: t}
	t.Checkpoints, t.Committer = &Checkpointer{Tree: t}, &Committer{Tree: t}
	return t
}

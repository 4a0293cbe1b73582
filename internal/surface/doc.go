// Package surface compares two commits and reports what a change does to the
// things that run, or decide what runs, on the machine of whoever checks the
// branch out, opens it in an editor, builds it or lets a CI run it: workflows,
// hooks, package scripts, sources of dependencies, settings of agents and
// editors, links, binaries and text that does not look like what it is.
//
// It looks at objects only (diff-tree, ls-tree, cat-file), never at a work tree,
// and runs nothing of the repository. Both commits may be hostile.
//
// It is no verdict. Ordinary code that does harm when it is run is not
// found here; a reviewer reads that. The report says where a reviewer who reads
// only the code would not look.
//
// The work is bounded whatever the change is: see the constants in limits.go.
// A file that was not read is a finding of the kind "unread".
package surface

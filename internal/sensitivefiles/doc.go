// Package sensitivefiles lists which paths a change touches that run, or decide what runs, on the machine of a person who checks
// the branch out, opens it in an editor or builds it, or in CI: workflows, hooks, dependencies, build files, settings of
// agents and editors, submodules, links, executables and binary files.
//
// A finding is a fact about a path, its mode, or git's own test for binary files. The package does not interpret content:
// a finding says where to look, not whether the change is harmful. Its severity depends on the rule alone. The package
// reads the object database and never a work tree, and runs nothing that the repository names.
package sensitivefiles

// Package proof finds out what a task's commits prove. The project's checks are run on the commit that the task
// began with and on the last one, each in a clean checkout, and compared test by test.
//
// What is clean about a checkout: its files come from objects whose ids were computed anew from their content, so
// that a store that the agent damaged is found out; its repository has no hooks and no configuration but ours; and
// its commands have a home of their own, since a home that an agent worked in can hold a changed flag of go, a module that python
// loads by itself, or a program of a usual name. Everything of it runs as the user sandbox, git included. No credential is used.
//
// What would stand beside the checks is removed before they begin and between the sides: the user's processes, and all containers of the
// inner engine but those that the project declares.
//
// What this is not: a defence against code under test that lies about itself. Base and head share the machine, its /tmp
// and the declared services, whose content the agent could change. What can be seen of such lies in the sources is flagged (internal/testreport).
//
// Head is run first, because it decides, then base. What differs, or fails on head, is repeated once, to tell
// flaky tests from results. Everything ends within the caller's deadline, and what there was no time for is said in Proof.Reason.
package proof

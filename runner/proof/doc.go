// Package proof finds out what a task's commits prove. The project's checks are run on the commit that the task
// began with and on the last one, each in a clean checkout, and compared test by test.
//
// A checkout is clean: its files come from objects whose ids were computed anew from their content, so
// that a store that the agent damaged is found out; its repository has no hooks and no configuration but ours; and
// its commands have a home of their own, since a home that an agent worked in can hold a changed flag of go, a module that python
// loads by itself, or a program of a usual name. Everything of it runs as the user sandbox, git included. No credential is used.
//
// Each side runs in a place that nobody wrote before (Ground): every folder that the agent could write to is a new one, shared memory
// and message queues are, its processes are ended, and the inner engine has no container, network, volume, build cache or name of an image
// of anybody's; the declared services are made anew from their images.
//
// This is no defence against code under test that lies about itself. Signs of such lies in the sources are
// flagged (internal/testreport).
//
// Head is run first, because it decides, then base. A check that differs, or fails on head, is repeated once, to tell
// flaky tests from results. Everything ends within the caller's deadline, and what there was no time for is said in Proof.Reason.
package proof

// Package proof determines what a task's commits change in the results of the project's checks. It runs the
// checks on the commit that the task started from and on the last one, each in a clean checkout, and compares
// them test by test.
//
// A checkout is clean: its files come from objects whose ids were recomputed from their content, so that a
// damaged object store of the agent is detected; its repository has no hooks and only a minimal
// configuration; and its commands have a separate home, since a home that an agent worked in can hold a
// changed flag of go, a module that python loads by itself, or a program with a common name. Everything in it
// runs as the user sandbox, including git. No credential is used.
//
// Each side runs in a fresh room (RoomMaker): every directory that the agent could write to is new, and
// so are shared memory and message queues; the agent's processes are killed; and the inner engine has no
// containers, networks, volumes, build cache or tagged images of the agent. The declared services are
// recreated from their images.
//
// If the task edited test files of base, the checks also run on head with base's version of them, once.
//
// This is not a defence against code under test that lies about itself.
//
// Head runs first, because it decides, then base. A check that differs, or fails on head, is repeated once,
// to tell flaky tests from results. Everything ends within the caller's deadline; Proof.Reason says what was
// left out for lack of time.
package proof

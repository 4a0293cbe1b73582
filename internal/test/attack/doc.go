// Command attack is what an agent that means harm does: it runs as the user
// sandbox inside of a real box and tries, one by one, what must not be possible, and
// beside it what must, so that a box in which nothing works does not pass for a safe one.
//
//	attack all FILE        every attempt of the configuration; one JSON line each on standard output
//	attack network FILE    those on the network; how they are tried in inner containers
//	attack traps FILE      what came of the traps that the first laid, once boot has committed and pushed
//	attack sandbox FILE    what a command in a standalone sandbox must not be able to do; FILE is a configuration of its own
//	attack leave           leaves in a lease whatever it can, and stays: each in a process of its own, "attack linger NAME"
//	attack look            what of that is there
//	attack table ROWS      prints what the tests collected, one JSON line for each attempt and box, as Markdown
//	attack race            no attempt of the agent's: what setup leaves behind for it
//	attack measure FILE    no attempt: times of requests, for the bench
//
// FILE is a Config. Attempts that reach for something outside carry a token, so that
// whoever plays the outside (e2e/attack_test.go) can tell what really arrived.
package main

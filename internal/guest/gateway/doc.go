// Package gateway is the agent's way out of the box to what needs a credential:
// the task's remote and the models. It listens on loopback, holds the
// credentials in the memory of boot, and the agent has none.
//
// # Git
//
// The agent's git is told, at system scope, to go to the gateway instead of the
// remote. The gateway fetches into the trusted mirror with the credential and
// serves the mirror, read-only (git.go). That works the same for HTTP and SSH remotes, and a push to it is
// refused with the reason.
//
// # Models
//
// Programs find the gateway by ANTHROPIC_BASE_URL and OPENAI_BASE_URL, and in the
// variables of the keys placeholders (auth.go). The gateway lets pass only what a model needs (request.go,
// body.go, headers.go), puts the key in place of the placeholder, and streams the answer unbuffered (proxy.go,
// answer.go). It never retries and never follows a redirect. On the way it counts tokens and cost (usage.go,
// meter.go, prices.go, account.go), keeps to the budget and to requests per minute (budget.go), bounds the memory
// of all bodies together (bodies.go), and writes a line of audit without bodies (audit.go).
//
// A call that reached a server is read to its end, also when its client hangs up: the server bills it all the same.
//
// A refusal has the shape of the provider's own errors (refuse.go), so that every program can show it. One for the
// budget is HTTP 400, which no agent retries.
package gateway

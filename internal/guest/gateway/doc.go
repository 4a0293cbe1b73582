// Package gateway is the agent's way out of the box to what needs a credential:
// the task's remote and the models. It listens on loopback, holds the
// credentials in the memory of boot, and the agent has none.
//
// # Git
//
// The agent's git is told, at system scope, to go to the gateway instead of the
// remote. The gateway fetches into the trusted mirror with the credential and
// serves the mirror, read-only. That works the same for HTTP and SSH remotes, and a push to it is refused with
// the reason.
//
// # Models
//
// Programs find the gateway by ANTHROPIC_BASE_URL and OPENAI_BASE_URL, and in the
// variables of the keys placeholders. The gateway lets pass only what a model needs, puts the key in place of the
// placeholder, and streams the answer unbuffered. It never retries and never follows a redirect. On the way it counts
// tokens and cost (see usage*.go, prices.go), keeps to the budget (budget.go) and to requests per minute, and
// writes a line of audit without bodies.
//
// A refusal has the shape of the provider's own errors, so that every program can show it. One for the
// budget is HTTP 400, which no agent retries.
package gateway

// Package gateway gives the agent access to the services that need a credential:
// the task's remote and the models. It listens on loopback and holds the
// credentials in the memory of boot. The agent has none.
//
// # Git
//
// The agent's git is configured, at system scope, to use the gateway instead of the
// remote. The gateway fetches into the trusted mirror with the credential and
// serves the mirror read-only (git.go). HTTP and SSH remotes work alike. A push is
// refused with the reason.
//
// # Models
//
// Programs find the gateway by ANTHROPIC_BASE_URL and OPENAI_BASE_URL. The variables
// of the keys contain placeholders (auth.go). The gateway passes only the requests that a model needs (request.go,
// body.go, headers.go), replaces the placeholder with the key, and streams the answer unbuffered (proxy.go,
// answer.go). It never retries and never follows a redirect. It counts tokens and cost (usage.go,
// meter.go, prices.go, account.go), enforces the budget and the requests per minute (budget.go), bounds the memory
// of all bodies together (bodies.go), and writes an audit line without bodies (audit.go).
//
// A call that reached a server is read to its end, even if its client hangs up: the server bills it in any case.
//
// A refusal has the format of the provider's own errors (refuse.go), so that every program can show it. A refusal for the
// budget is HTTP 400, which no agent retries.
package gateway

// Package forgetest is a GitHub for tests: a server with the operations that package
// forge uses, over plain HTTP at any address, with real state behind them.
//
//	f := forgetest.New(forgetest.Options{Owner: "o", Name: "r"})
//	f.AddUser("ann", forgetest.User{Permission: "write"})
//	f.AddToken("t0ken", "ann")
//	f.SetBranch("agent/T-1", sha)
//	srv := httptest.NewServer(f) // or http.Serve on a listener that a box can reach
//	remote := srv.URL + "/o/r.git" // or any remote, with srv.URL as base URL
//
// It answers below /api/v3/ and /api/graphql as an enterprise server does, and below / and
// at /graphql as api.github.com does. Other requests (git, say) are not its affair: put it
// behind the prefixes. A new server has the default branch and no users, tokens, labels or issues.
//
// It is strict. Each request and each answer is checked against the excerpt of GitHub's public
// OpenAPI description in testdata; fields and parameters that the description does not have are refused as well. Whatever
// did not fit is in Violations, which a test should find empty. Requests need a known token,
// and changes one whose owner may make them. Without Options.Branch or SetBranch a branch does not
// exist, and no pull request can be opened for it.
//
// GraphQL is the subset that review threads need, recognised by field: viewer, reviewThreads,
// node, resolveReviewThread. Package forge checks the queries themselves against GitHub's schema.
//
// Conformance is the suite of what forge.Forge promises: a new forge passes it, against a server of its own kind (Scene).
//
// Bad luck is added by Inject: statuses, rate limits with their headers, answers that are lost after
// the request was carried out, connections that break.
package forgetest

//go:generate go run openapi_generate.go

// Package report says what came of a task: as the body of its pull request
// (Markdown, as GitHub reads it) and as one HTML file that opens from disk, both from one
// model, so that they cannot say different things.
//
// Nearly every word in it was written by an untrusted agent, or could
// have been: the task may quote an issue, a commit's subject, a test's name, a
// path, the agent's last words. All of it is data. It loses its control and
// bidirectional characters, is bounded in length, and is escaped at the very place
// where it is written, so that it cannot be a heading, a mention, a reference, an
// image, a link or an end of a fold. Facts that the runner itself proved come before what
// the agent claims, and what speaks against the work before what speaks for it.
//
// The output depends on the data only: times are UTC, lists have an order.
package report

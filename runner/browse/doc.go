// Package browse looks at the project's development server with a browser: what a reviewer would see before and after
// the task's commits, what the console said, which requests failed.
//
// Three parties do not trust each other. The server is code of the repository and runs as the user sandbox, in a
// clean checkout. The browser eats what that serves; it runs as a user of its own, so that nothing that the repository or the agent left
// running can write its files, trace it or take its place. Root starts both, and takes only pictures and videos of a bounded size
// from the browser's folder, under names of its own, without following links.
//
// Serve starts a server and waits for it. Browser.Look is root's side of the browser, Visit the browser's own: it runs in the role `browse` of
// cmd/entrypoint, reads a request on standard input and prints a line of JSON for each page. Compare says how two pictures differ.
package browse

// Package browse takes screenshots of the project's development server before and after the task's commits,
// for the reviewer, with console errors and failed requests.
//
// The parties do not trust each other. The server is code of the repository and runs as the user sandbox, in
// a clean checkout. The browser processes what the server sends; it runs as a separate user, so that nothing
// that the repository or the agent left running can write its files, trace it or impersonate it. Root starts
// both, and takes only pictures and videos of bounded size from the browser's directory, under names of its
// own, without following links.
//
// Serve starts a server and waits for it. Browser.Visit is root's side of the browser. Visit is the browser's
// side: it runs in the role `browse` of cmd/entrypoint, reads a request on standard input and prints a line
// of JSON for each page. Compare computes the difference of two pictures.
package browse

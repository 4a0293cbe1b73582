// Package github is forge.Forge for GitHub: github.com, GitHub's data-resident hosts
// (*.ghe.com) and GitHub Enterprise servers. The box uses it as root after the
// landing, the host for issues and for what is opened later.
//
// It opens or updates the task's pull request, reads issues and review feedback,
// and answers review threads. A forge that is down must never cost a run anything,
// so every call has a deadline, waits for rate limits only within it, and ends in an
// Error whose Kind says what happened and whose Next says what to do.
//
// A request that is sent twice does nothing twice: requests that change nothing are repeated
// when the server or the network fails, those that create something only after
// a look whether it is there already.
//
// Everything that the forge sends was written by somebody: sizes are bounded,
// hidden text is taken out (Strip), and each text carries who wrote it and whether
// that person may write to the repository. The token goes to the API's own scheme,
// host and port alone, and is in no error and no log.
//
// Requests and answers are those of the public description of GitHub's REST API;
// package forgetest has an excerpt of it, checks both sides against it and
// is a forge for tests of flows.
package github

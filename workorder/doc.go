// Package workorder is the contract between host and guest: the work order, the events and the result, the statuses,
// the exit codes and the shutdown budget. Host and guest are released separately and share nothing else, so this
// package declares everything that both must agree on.
//
// It imports only the standard library.
//
// Compatibility: Version is the contract's major version. A reader accepts only its own version. Orders are read
// strictly: unknown fields are errors, so that a guest never obeys an order partly. Results and events are read
// leniently: a newer guest may add fields.
package workorder

// Version is the version of the contract, carried by every document.
const Version = 1

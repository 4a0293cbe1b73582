// Package workorder is the contract between host and guest: the work order
// that goes in, the events and the result that come out, the statuses, the exit
// codes and the shutdown budget. Host and guest ship apart and share nothing
// else, so everything both sides must agree on is declared here, once.
//
// It imports the standard library only and nothing of this module.
//
// Compatibility: Version is the contract's major version. A reader accepts its
// own version only. Orders are read strictly (unknown fields are errors: an
// order that asks for something this guest does not know must not be half
// obeyed). Results and events are read leniently (a newer guest may say more
// than an older host understands).
package workorder

// Version is the version of the contract, carried by every document.
const Version = 1

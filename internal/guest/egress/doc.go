// Package egress is the network policy of the box (workorder.Network), for the
// agent, the project's commands and inner containers alike.
//
// The kernel enforces it: one table of nftables, replaced as a whole, is in force
// before anything untrusted runs. Who is trusted is decided by the owner of the socket: uid 0 with gid 0 is
// boot and what it starts. Everything else is held to the policy, and inner containers are known by the bridge they
// come from, never by an address, which they can forge. The inner engine's daemon (uid 0 with a group of its own) is held
// to it from Seal on.
//
// In mode restricted, DNS goes to a resolver and TCP to a proxy of ours; all else is refused at once. The
// resolver answers an allowed name with a synthetic address of 198.18.0.0/15, so the proxy knows the name of a connection
// whatever its protocol, and it resolves that name itself: what a client was told can never disagree with what is
// dialled. TLS is not opened. The proxy reads the server name of the first message (with Encrypted Client Hello, the outer name decides) and
// splices. HTTP/1 without TLS is parsed and every request is judged.
//
// An allowed name may resolve to a private address (companies have internal hosts) where its rule says so, but never to a
// metadata service, the box itself or its inner networks.
//
// With Network.Learn nothing that has a name is refused, and TCP to an address without a name passes, too; UDP, ICMP and all else stay
// refused as in restricted.
//
// A policy that cannot be put in force is an error of Up. Nothing falls back to a weaker policy.
package egress

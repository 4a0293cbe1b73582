// Package egress is the network policy of the box (workorder.Network), for the agent, the project's commands
// and inner containers alike.
//
// The kernel enforces it: one nftables table, replaced as a whole, is in force before any untrusted code
// runs. The owner of the socket decides whether it is trusted: uid 0 with gid 0 is boot and its children. The
// policy applies to all other sockets. Inner containers are recognised by the bridge that they use, never by
// an address, which they can forge. From Seal on, the policy also applies to the inner engine's daemon (uid 0
// with a group of its own). A connection that boot opened is boot's only: what another socket sends from the
// same port to the same server is refused, for as long as the kernel remembers the connection.
//
// In mode restricted, DNS goes to the package's resolver and TCP to its proxy; everything else is refused at
// once. The resolver answers an allowed name with a synthetic address of 198.18.0.0/15, so the proxy knows
// the name of a connection of any protocol. The proxy resolves that name itself, so the dialled address
// cannot differ from the checked name. TLS is not opened. The proxy reads the server name of the first
// message (with Encrypted Client Hello, the outer name decides) and splices. HTTP/1 without TLS is parsed and
// every request is checked.
//
// An allowed name may resolve to a private address (companies have internal hosts) if its rule says so, but
// never to a metadata service, the box itself or its inner networks.
//
// With Network.Learn no name is refused, and TCP to an address without a name passes, too; UDP, ICMP and
// everything else stay refused as in restricted.
//
// If a policy cannot be applied, Up returns an error. There is no fallback to a weaker policy.
package egress

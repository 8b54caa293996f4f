// SPDX-License-Identifier: Apache-2.0

// Package fallback is a broadcast by in-network multicast that continues when multicast does
// not work (Cepheus §V-D, CEP-46). If the group cannot be registered, or moves less than half
// of the normal amount of data over a window, the source of the message makes all ranks leave
// the group. It then sends the message again from its beginning, to the ranks that lack it,
// over unicast connections. Meanwhile the group is registered again. Once a test of the new
// group succeeds, all ranks return to it between two messages.
//
// A Bcast is made of four values, each in a file of its own:
//
//	membership  who is alive, who is served apart, who takes part in a message (membership.go)
//	epochs      the group in use, the one to be used next, and when to try (epochs.go)
//	overlay     the tree of unicast connections that stands in for the group (overlay.go)
//	stragglers  ranks apart: their connections, deliveries and speed (stragglers.go)
//
// They meet in the source's side (source.go, trial.go) and the receiver's (receiver.go).
//
// # Protocol
//
// Only the source of a message decides. The next source starts when that one is done, and
// knows everything that it decided. The source publishes numbered steps out of band, so that a
// broken fabric cannot keep ranks from receiving them. On each rank a worker, the guard, acts
// on the steps in order and publishes an answer. The source waits for the answers of all ranks
// whose NICs a probe reaches.
//
//	message    sent by  when                        carries                      the receiver                                answers
//	sample     source   before a stop, in partial   time of the first sample     notes which PSN it expects, 16 times        the PSNs, when the message came
//	                    mode
//	stop       source   the group or the overlay    -                            leaves both; forgets what came of a         whether it has the message
//	                    fails                                                    message that is not whole
//	plan       source   after a stop, a test or     ranks alive, apart, to be    adopts it: closes connections of ranks no   whether it has the message
//	                    the loss of a rank          reconnected and lacking the  longer apart, uses the epoch named, posts
//	                                                message; epoch or -1         receives where the message is to come
//	try        source   a group is wanted and the   epoch, its members           begins to register the group if it is in    -
//	                    backoff has passed                                       it
//	probe      source   the candidate is            epoch, sender, size and      posts receives, or prepares to send         why it cannot
//	                    registered                  count of test messages
//	test       source   all answered probe, and     as probe                     the sender sends the test messages          why the test failed
//	                    another rank is to send
//	drop       source   the candidate failed        epoch                        leaves the candidate                        -
//	end        first    Close                       -                            ends its guard                              no answer
//	answer     guard    it has acted on a step      as above                     the source continues when all it waits for
//	                                                                             have come
//	done       member   its part of a message in    why it failed; empty if not  the source ends the message when all came,
//	                    the overlay has ended                                    or stops at the first failure
//
// Two kinds of messages travel in the fabric beside the data: probes, which are WRITEs of
// length zero over connections in the traffic class of registration and show whose NIC
// answers, and the messages of tests.
//
// # Invariants
//
// No rank gets a message, or a part of one, twice: Run returns when all of the message has
// arrived, an interrupted message is received again from its beginning, and the queue pairs
// that could still write into the buffer are destroyed before any rank sends again. Each
// epoch has a McstID and queue pairs of its own, so that packets of an old epoch are never
// taken for those of a new one.
package fallback

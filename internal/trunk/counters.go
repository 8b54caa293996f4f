// SPDX-License-Identifier: Apache-2.0

package trunk

// Counters count the traffic of one end. Bytes are those of batches with their headers; batches without frames do not count.
type Counters struct {
	Links           int    `json:"links"`
	SentFrames      uint64 `json:"sent-frames"`
	SentBytes       uint64 `json:"sent-bytes"`
	SentBatches     uint64 `json:"sent-batches"`
	ReceivedFrames  uint64 `json:"received-frames"`
	ReceivedBytes   uint64 `json:"received-bytes"`
	ReceivedBatches uint64 `json:"received-batches"`
	Stalls          uint64 `json:"stalls"` // batches for which the connection took longer than 10 ms
}

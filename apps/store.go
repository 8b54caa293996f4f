// SPDX-License-Identifier: Apache-2.0

package apps

// Record is a block in a store with the number of the write that it comes from.
type Record struct {
	Block  uint32 // number of the block, counted over the volumes of all jobs
	Number uint64 // number of the write, counted from 1 in each job
	Data   []byte
}

// Store is the durable storage of a host for one volume. Its methods block until they are done and
// must not be called concurrently.
type Store interface {
	// Put adds records, each in place of its block's former one. They are durable once Sync has
	// returned.
	Put(records []Record) error
	// Sync makes all records durable that Put has added, in one group commit.
	Sync() error
	// Each calls f for every block that has a record, in the order of blocks. Data is valid
	// until f returns.
	Each(f func(Record) error) error
	// Get returns the record of a block. It is an error if there is none.
	Get(block uint32) (Record, error)
	// Crash closes the store without making anything durable. Records that were not durable are
	// lost; the others are there when the store is opened again.
	Crash()
	// Close closes the store. Records that Sync has not covered may be lost.
	Close() error
}

package apps

// Record is a block as a store has it: what the write of that number left there.
type Record struct {
	Block  uint32 // of all jobs' volumes
	Number uint64 // of the write, from 1 on in each job
	Data   []byte
}

// Store is the durable memory of a host for one volume. Its calls come back when they
// are done; no two come at once.
type Store interface {
	// Put adds records, each in place of what its block had. They last when Sync has
	// returned.
	Put(records []Record) error
	// Sync makes all durable that was put: a group commit.
	Sync() error
	// Each calls f for every block that has a record, in the order of blocks. Data is valid
	// until f returns.
	Each(f func(Record) error) error
	// Get returns the record of a block, which must have one.
	Get(block uint32) (Record, error)
	// Crash ends the store without a word; what was not made durable is lost. Who opens it
	// again finds the rest.
	Crash()
	Close() error
}

// SPDX-License-Identifier: Apache-2.0

package shareapi

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Run is a program on a node. It is a program of the node's server, and has the environment and the folder of the caller.
type Run struct {
	Argv     []string `json:"argv"`
	Env      []string `json:"env"`   // the caller's
	More     []string `json:"more"`  // set for this program
	Dir      string   `json:"dir"`   // the caller's
	Since    int64    `json:"since"` // when the lab was deployed, in seconds since 1970
	Library  string   `json:"library"`
	Clock    string   `json:"clock"`
	Root     bool     `json:"root"`
	InTurns  bool     `json:"in-turns"`
	Turns    bool     `json:"turns"`
	Rank     uint32   `json:"rank"`
	Terminal *Size    `json:"terminal,omitempty"` // nil: it has none
	Scratch  bool     `json:"scratch,omitempty"`  // it has a folder for files, as Open MPI's programs have
	MPI      *MPI     `json:"mpi,omitempty"`      // mpirun runs it; nil: it runs by itself
}

// OpenProgram returns the header of the stream of a program on a node.
func OpenProgram(node string, r *Run) (*Open, error) {
	b, err := json.Marshal(r)
	return &Open{Stream: Stream_STREAM_PROGRAM, Node: node, Run: b}, err
}

// Program returns the program of such a header.
func (o *Open) Program() (*Run, error) {
	r := &Run{}
	if err := json.Unmarshal(o.Run, r); err != nil {
		return nil, fmt.Errorf("read the program to run at %s: %w", o.Node, err)
	}
	if len(r.Argv) == 0 {
		return nil, errors.New("a program without a name")
	}
	return r, nil
}

// MPI holds the settings of a program that mpirun runs.
type MPI struct {
	Ranks     []string `json:"ranks"` // the host of each
	Ask       []string `json:"ask"`   // the hosts at which it may have daemons started
	Dilation  float64  `json:"dilation"`
	Multicast bool     `json:"multicast,omitempty"` // the switches do its broadcasts
	Tagged    bool     `json:"tagged,omitempty"`    // it says in XML what each rank writes
}

// Asked is a command that mpirun wants to run on another host, or the reason why there is none.
type Asked struct {
	Host    int    `json:"host"` // number in MPI.Ask
	Command string `json:"command"`
	Error   string `json:"error,omitempty"`
}

// Size is that of a terminal, in characters.
type Size struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Ended is the exit code of a program, or the reason why the program has not begun.
type Ended struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

// Part is the kind of a piece of the connection of a program.
type Part byte

// To the program.
const (
	PartIn     Part = iota + 1 // what it reads; empty: there is no more
	PartSignal                 // the number of a signal
	PartSize                   // of its terminal, Size as two numbers of 16 bits
)

// From the program.
const (
	PartOut   Part = iota + 16 // what it has written to standard output
	PartErr                    // and to standard error
	PartTaken                  // it has taken a piece of PartIn
	PartEnded                  // Ended as JSON: nothing follows
	PartAsked                  // Asked as JSON
)

// PieceMax is the most bytes of a piece, and PiecesMax how many pieces of PartIn may be under way, so that a signal is
// never behind what a program does not read.
const (
	PieceMax  = 32 << 10
	PiecesMax = 8
)

// Pieces writes pieces, one at a time.
type Pieces struct {
	mu sync.Mutex
	w  io.Writer
}

// NewPieces returns pieces that are written to w.
func NewPieces(w io.Writer) *Pieces { return &Pieces{w: w} }

// Write sends a piece.
func (p *Pieces) Write(part Part, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(append(binary.BigEndian.AppendUint32([]byte{byte(part)}, uint32(len(b))), b...))
	return err
}

// Writer returns a writer whose bytes are pieces of a kind.
func (p *Pieces) Writer(part Part) io.Writer { return pieceWriter{p, part} }

type pieceWriter struct {
	p    *Pieces
	part Part
}

// Write implements io.Writer.
func (w pieceWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		most := min(len(b), n+PieceMax)
		if err = w.p.Write(w.part, b[n:most]); err == nil {
			n = most
		}
	}
	return n, err
}

// ReadPiece reads a piece into a buffer of PieceMax bytes or more.
func ReadPiece(r io.Reader, buf []byte) (part Part, b []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > PieceMax {
		return 0, nil, fmt.Errorf("a piece of %d bytes is longer than %d", n, PieceMax)
	}
	_, err = io.ReadFull(r, buf[:n])
	return Part(head[0]), buf[:n], err
}

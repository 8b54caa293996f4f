// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"

	"github.com/mcastlab/mcastlab/lab"
)

// A program reads a lab, makes its links faster and writes it as a lab file again. What reading has
// filled in, here the labels and the root, is written out.
func Example() {
	l, err := lab.Parse("four.mcl.yml", []byte(`name: four
topology: {star: {hosts: 4}}
workloads:
  - bcast: {schemes: [cepheus, binomial], sizes: [64KiB]}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	if l.Links.Rate, err = lab.ParseRate("400Gbps"); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s", l.Compact())
	// Output:
	// name: four
	// topology: {star: {hosts: 4}}
	// links: {rate: 400Gbps}
	// runtime: {clock: lockstep}
	// workloads:
	//   - {bcast: {schemes: [{name: cepheus, label: cepheus}, {name: binomial, label: binomial}], root: h0, sizes: [64KiB]}}
}

// A file with several mistakes is refused with all of them, each with its line, its column and a
// remedy.
func ExampleMistakes() {
	_, err := lab.Parse("four.mcl.yml", []byte(`name: four
topology: {star: {hosts: 4}}
links: {vlan: 4095}
workloads:
  - bcast: {schemes: [cepheos], sizes: [64KiB]}
`))
	fmt.Println(err)
	// Output:
	// four.mcl.yml:3:15: links.vlan of 4095 is not 1 to 4094, or 0 for none
	// four.mcl.yml:5:23: no broadcast scheme "cepheos", did you mean "cepheus"?
	// four.mcl.yml: 2 mistakes
}

// A line of expect is evaluated with the quantities of a run, in microseconds.
func ExampleExpect_Eval() {
	e, err := lab.ParseExpect("PRED bcast.cepheus.64KiB.jct.p50 < bcast.binomial.64KiB.jct.p50 / 1.5")
	if err != nil {
		fmt.Println(err)
		return
	}
	measured := map[string]float64{"bcast.cepheus.64KiB.jct.p50": 9.5, "bcast.binomial.64KiB.jct.p50": 18.25}
	got, holds, err := e.Eval(func(name string) (float64, error) {
		value, ok := measured[name]
		if !ok {
			return 0, fmt.Errorf("the run has no quantity %s", name)
		}
		return value, nil
	})
	fmt.Println(e.Basis, got, holds, err)
	// Output: PRED 9.5 true <nil>
}

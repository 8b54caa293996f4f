// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestControllers: faults of the control plane find controllers by name, pattern and expression,
// and cut the directions they say; without controllers, or with a node of that name, the file
// is refused.
func TestControllers(t *testing.T) {
	const head = "name: x\ntopology: {star: {hosts: 3}}\ncontrollers: 3\nfaults:\n  - "
	for _, c := range []struct{ fault, want string }{
		{"{control-partition: {controllers: controller1}}", "[controller1>controller0 controller0>controller1 controller1>controller2 controller2>controller1]"},
		{"{control-partition: {controllers: controller1, direction: out}}", "[controller1>controller0 controller1>controller2]"},
		{"{control-partition: {controllers: [controller2, controller0], direction: in}}", "[controller1>controller0 controller1>controller2]"},
		{"{controller-crash: {controllers: 're:[02]$'}}", "[controller0 controller2]"},
		{"{controller-crash: {controllers: 'controller*'}}", "[controller0 controller1 controller2]"},
	} {
		l, err := Parse("x", []byte(head+c.fault+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.graph()
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Faults[0].spec(l, g, "f")
		if got := fmt.Sprint(s.Where(g)); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.fault, got, err, c.want)
		}
		if again, err := Parse("x", l.Resolved()); err != nil || string(again.Resolved()) != string(l.Resolved()) {
			t.Errorf("%s: resolved it is another lab, %v", c.fault, err)
		}
	}
	for text, want := range map[string]string{ // independent of each other
		head + "{controller-crash: {controllers: controller3}}\n":                                                              `there is no controller "controller3"`,
		strings.Replace(head, "controllers: 3", "controllers: 1", 1) + "{controller-crash: {controllers: '*'}}\n":              "the lab has no controllers: give it controllers: 3",
		head + "{control-partition: {controllers: 're:['}}\n":                                                                  "is not a regular expression",
		"name: x\ncontrollers: 5\ntopology: {custom: {hosts: [controller4, b], switches: [s], links: [controller4-s, b-s]}}\n": "controller4 is the name of a controller",
		"name: x\ncontrollers: 2\ntopology: {star: {hosts: 3}}\n":                                                              `controllers cannot be "2"`,
	} {
		if _, err := Parse("x", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for n, want := range map[int]int{0: 0, 1: 0, 3: 3, 5: 5} { // independent of each other
		if got := len((&Lab{Controllers: n}).Replicas()); got != want {
			t.Errorf("controllers: %d has %d replicas", n, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Command mcastlab is a testbed emulator for in-network RoCE multicast.
package main

import "github.com/mcastlab/mcastlab/command"

func main() { command.Main() }

package bugbank

import "github.com/mcastlab/mcastlab/patch"

// attackHost are signals, races and files of the live half, found by attacking mcastlab itself.
var attackHost = []pitfall{
	{
		what: "An address that is a number while a stack grows names the stack's old place: the kernel's answer is lost, one deployment in eleven failed",
		seen: "github.com/safchain/ethtool 0.7.0, func ioctl",
		bugs: []bug{{
			wrong: "The address of what ethtool is asked goes through a uintptr",
			edits: []patch.Edit{
				{File: "netdev/ethtool_linux.go", Old: "\tdata unsafe.Pointer\n", New: "\tdata uintptr\n"},
				{File: "netdev/ethtool_linux.go", Old: "ioctl(name string, data unsafe.Pointer)", New: "ioctl(name string, data uintptr)"},
				{File: "netdev/ethtool_linux.go", Old: "unsafe.Pointer(&info)", New: "uintptr(unsafe.Pointer(&info))"},
				{File: "netdev/ethtool_linux.go", Old: "s.ioctl(name, unsafe.Pointer(&text[0]))", New: "s.ioctl(name, uintptr(unsafe.Pointer(&text[0])))"},
				{File: "netdev/ethtool_linux.go", Old: "unsafe.Pointer(&b[0])); err != nil {\n\t\treturn nil, fmt", New: "uintptr(unsafe.Pointer(&b[0]))); err != nil {\n\t\treturn nil, fmt"},
				{File: "netdev/ethtool_linux.go", Old: "unsafe.Pointer(&b[0])); err != nil {\n\t\treturn fmt", New: "uintptr(unsafe.Pointer(&b[0]))); err != nil {\n\t\treturn fmt"},
			},
			test: "netdev TestFeaturesOnGrowingStacks", root: true,
		}},
	},
}

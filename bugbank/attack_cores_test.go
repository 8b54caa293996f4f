package bugbank

// attackCores are what the NIC and the switch never give back, found by attacking mcastlab itself.
var attackCores = []pitfall{}

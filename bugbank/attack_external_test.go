package bugbank

// attackExternal are external devices, found by attacking mcastlab itself.
var attackExternal = []pitfall{}

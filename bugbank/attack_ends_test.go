package bugbank

// attackEnds are runs that never end, found by attacking mcastlab itself.
var attackEnds = []pitfall{}

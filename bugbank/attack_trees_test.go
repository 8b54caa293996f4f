package bugbank

// attackTrees are trees of groups under changing routes, and rules of the cores, found by attacking mcastlab itself.
var attackTrees = []pitfall{}

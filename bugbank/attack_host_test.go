package bugbank

// attackHost are signals, races and files of the live half, found by attacking mcastlab itself.
var attackHost = []pitfall{}

package bugbank

// attackInputs are labs that panic, overflow or take for ever, found by attacking mcastlab itself.
var attackInputs = []pitfall{}

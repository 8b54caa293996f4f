package bugbank

var attackTurns = []pitfall{}

package bugbank

var attackLimits = []pitfall{}

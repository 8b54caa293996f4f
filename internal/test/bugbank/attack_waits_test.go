package bugbank

var attackWaits = []pitfall{}

package bugbank

var attackEvents = []pitfall{}

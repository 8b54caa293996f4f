package bugbank

var attackGroups = []pitfall{}

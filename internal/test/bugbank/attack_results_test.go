package bugbank

var attackResults = []pitfall{}

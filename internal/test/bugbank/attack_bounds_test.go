package bugbank

var attackBounds = []pitfall{}

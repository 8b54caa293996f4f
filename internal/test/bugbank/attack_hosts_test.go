package bugbank

var attackHosts = []pitfall{}

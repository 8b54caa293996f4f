package bugbank

var attackDevices = []pitfall{}

package bugbank

// attackLifetime are what an interrupted or failed run leaves on a lab that stays up, found by attacking mcastlab itself.
var attackLifetime = []pitfall{}

package bugbank

// attackHPL are figures quoted from programs and papers, found by attacking mcastlab itself.
var attackHPL = []pitfall{}

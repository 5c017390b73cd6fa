package belay

// Permanent are the reasons that no repetition helps, for the tests.
var Permanent = permanent

// ToDocument is what a plan is sent as, for the tests.
var ToDocument = toDocument

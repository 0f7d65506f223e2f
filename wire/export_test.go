package wire

// The two roads of ParseCall, for tests that hold one against the other.
var (
	ReadCall   = readCall
	DecodeCall = decodeCall
)

package capability

// A Result is the result of a call as taint looks at it: whose it is, and what
// the operator says of what that tool returns.
type Result struct {
	Tool      string // the tool's name
	Profile   Profile
	Untrusted Hint // Yes: the operator says that others write in this tool's results; No and Unset add nothing
}

// Taints reports whether the result can carry content of uncontrolled origin
// (specification, section 2): its tool is open_world, of unknown origin or a
// fetcher, or the operator says so. What cannot be told taints: an origin or an
// annotation that is not valid does.
//
// Nothing that a tool or the operator says takes the taint of an unknown origin
// or of a fetcher away; an operator who knows better states another origin.
func (r *Result) Taints() bool {
	switch r.Profile.Origin {
	case LocalSandbox, FirstParty, RegisteredConnector, AccessGrant, AccessRevoke, AdminManage, AdminGrant:
	default:
		return true
	}
	return r.Profile.IsOpenWorld() || r.Untrusted == Yes || !r.Untrusted.Valid()
}

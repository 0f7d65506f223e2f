// Package agent is what stands in front of a real agent: it knows the agent's
// tools, follows the taint of its conversations, and answers each call.
//
// Most callers need three functions:
//
//	catalogue, err := agent.LoadCatalogue("agent.toml") // "" is the one that ships
//	gate := &agent.Gate{Engine: engine, Catalogue: catalogue, Sessions: &agent.Sessions{Log: log}}
//	verdict, err := gate.Decide(ctx, agent.Request{Session: id, Tool: "WebFetch", CallID: call, Arguments: arguments})
//	err = gate.Result(ctx, agent.Result{Session: id, Tool: "WebFetch", CallID: call})
//
// A call may run only if the error is nil and [Verdict.Runs] says so, or if a
// person who was shown [Verdict.Asks] says so.
//
// # Taint
//
// A conversation is tainted from the moment on at which a call is let go whose
// result can carry content of uncontrolled origin, before that call runs. So no
// result is ever seen by a conversation that counts as clean, whatever happens to
// the message that tells of the call's end. A conversation whose beginning the gate
// did not see counts as tainted too: nobody knows what is in it. Only a person
// clears it.
//
// # Caveats
//
// The gate sees what its surface shows it. What an agent reads without a call,
// such as files that a person mentions, is not followed.
package agent

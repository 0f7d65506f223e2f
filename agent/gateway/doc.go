// Package gateway stands between an MCP client and its MCP servers and decides
// every tool call that passes.
//
// [New] makes a [Gateway] of a [Config]; [Gateway.ServeStdio] serves one client
// on a pair of streams, and [Gateway.Handler] serves many over streamable HTTP.
//
// The gateway forwards JSON-RPC messages and does not rebuild them: the
// parameters of a request and the result of an answer keep their bytes, so that
// members this program has never heard of, and numbers that no float holds,
// arrive as they were sent. It changes the ids of requests, which it needs for
// its own, and looks into few methods:
//
//   - tools/list is read and shortened to the tools that are owned and viable;
//   - tools/call is decided, and what came back is on record as taint before
//     the client sees it;
//   - resources/read, prompts/get and tasks/result taint in the same way;
//   - a question of a server to the person (elicitation) names the server;
//   - with several servers, lists are joined and names find their owner.
//
// What cannot be decided is answered with an error and never sent on.
//
// # Caveats
//
// A server's notifications (progress, logging) reach the client while a call
// runs, before the taint of its result is on record. MCP clients show them to
// people; one that feeds them to the model sees outside content a moment early.
//
// A server that has ended is not started again in the same session: what it
// held is gone, and its tools would come back under another's beliefs.
package gateway

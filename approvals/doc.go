// Package approvals puts a ledger before the people who decide: an API over HTTP
// with a stream of what changes, and a page.
//
//	tokens, err := approvals.OpenTokens("tokens") // or OneToken
//	if err != nil {
//		return err
//	}
//	h := approvals.New(&approvals.Options{Ledger: l, Tokens: tokens})
//	defer h.Close()
//	return http.ListenAndServe("localhost:8181", h)
//
// Everything but the page's own files asks for a token. One of a viewer reads,
// one of an approver decides, too. Who decided is whose token it was, and never
// what a request says.
//
// # Caveats
//
// Tokens and arguments travel as they are: on an address that others can reach,
// TLS is for the server around this handler. Where that server's ResponseWriter
// lets nobody set a deadline, a reader of the stream that stalls keeps its place
// until its connection ends; each token has a share of the places.
package approvals

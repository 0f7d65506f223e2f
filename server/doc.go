// Package server runs the gate as an OPA: OPA's own runtime with its server,
// bundles, discovery, decision logs, status and metrics, configured by OPA's
// configuration file, and beside its APIs those of the gate.
//
//	s, err := server.New(ctx, &server.Options{Addrs: []string{"localhost:8181"}})
//	if err != nil {
//		return err
//	}
//	return s.Serve(ctx)
//
// # What decides
//
// The policies in OPA's store decide. Each change of the store is looked at
// before it is committed: an [evaluator.Evaluator] is made of what would be in
// force, and asked about a few calls. A change that does not compile, that lacks
// an entrypoint or answers in another shape is refused, and what was in force
// stays so; OPA reports the refusal as that of the bundle that brought it. An
// answer is wholly that of the policies before a change or of those after it.
//
// # Caveats
//
// The gate's packages come in one bundle; others may bring documents, and
// packages that have nothing to do with it. OPA's storage on disk is not
// supported, because its transactions cannot be looked at. A process has one
// server: OPA's compilers write to types that they share, and within one server
// they take turns.
//
// While no policies are active, or stale ones, OPA's own APIs evaluate nothing
// either. The default mask of decision logs is that of data.system.log.mask:
// who configures another mask_decision has none, and the text of a query that
// somebody asks OPA is never masked.
package server

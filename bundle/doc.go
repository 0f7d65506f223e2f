// Package bundle makes bundles of policies, as OPA takes them, and tells what
// one is worth: who signed it, what is in it, and whether it can be used.
//
//	built, err := bundle.Build(ctx, nil) // the embedded policies
//	err = os.WriteFile("bundle.tar.gz", built.Bytes, 0o644)
//
// What is built is ordinary: a stock OPA loads it, verifies its signature and
// pulls it from a registry, with nothing of ours.
package bundle

// Package conformance puts the specification's cases to several engines, and
// reports what each of them answers: as text, as JSON, or as JUnit XML.
//
// Most callers need two functions. Run puts a suite to engines, and a Report
// writes itself:
//
//	suite, err := fixtures.Load(fixtures.Cases())
//	server, err := conformance.NewServer("http://localhost:8181", nil)
//	report := conformance.Run(ctx, suite, nil, conformance.Of(evaluator.Native{}, "native", 1), server.Engine())
//	if !report.OK {
//		err = report.WriteText(os.Stdout, nil)
//	}
//
// # Engines of this program and others
//
// An engine of this program reads documents with package wire, and the cases
// about reading, names and viability are about Go code that it runs with. The
// policies' WebAssembly build ([NewWasm]) and a server that speaks OPA's Data API
// ([NewServer]) decide calls and skills, and nothing else. Of them it is asked:
//
//   - every call and skill;
//   - profiles and redeclarations, by the calls that such a case consists of;
//   - every document that breaks its schema. They must deny it and name the
//     place, or refuse it as a bad request.
//
// It is not asked what they cannot be asked: names and viability, and texts that
// are no JSON or exceed the reader's bounds, which cannot stand in a request. A
// report counts those cases as not asked and says why; they are never among the
// cases that passed.
//
// # Known gaps
//
// A case that an engine is known to answer otherwise stands in a [Baseline] with
// the reason. It is reported as a known gap. An entry that the run disproves,
// because there is no such case or because the engine answers it as wanted, is
// an error of its own.
package conformance

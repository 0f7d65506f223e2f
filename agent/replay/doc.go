// Package replay puts recorded tool calls to policies: what would have been
// answered to each, how often a person would have been asked, and what another
// policy would have answered.
//
//	trace, err := replay.Read(file)
//	report, err := replay.Run(ctx, evaluator, trace, &operator)
//
// A trace is lines of JSON: events as this package defines them ([Event]), or the
// transcript of a Claude Code session. Lines of either kind may stand in one file.
//
// A session is clean until a result enters it that taints, by the policies' rule on
// results; each of its calls is decided under the taint that the policies' rule on
// steering says, if they have one. A call that asks goes on as it was recorded: a
// person let it. The result of a call that is denied does not enter.
//
// [Corpus] is something else: sequences of calls of a benchmark, without arguments,
// and labels of their tools. [Corpus.Curve] tells how many tasks ask a person, and
// how many attacks are stopped, under several rules.
package replay

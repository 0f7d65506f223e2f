package gate.invariants

# What the rule in gate/call/deploy.rego is for.
breach contains message if {
	input.decision.outcome in {"allow", "modify", "inject_context"}
	input.call.tool.name == "mcp__deploy__start"
	message := "a deployment starts without a person"
}

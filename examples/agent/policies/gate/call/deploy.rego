package gate.call

# Another rule for data.gate.call.asks_for_person: a deployment is put to a person in
# every session, whatever the catalogue says of the tool.
asks_for_person if input.tool.name == "mcp__deploy__start"

package gate.wire

# METADATA
# title: A sentence about the first problem
# description: |
#   The first is the one whose pointer sorts first.
complaint(document, problems) := concat("", [
	"The ", document, " document breaks its schema", place, ": expected ", first[1], ".",
]) if {
	first := min(problems)
	place := at(first[0])
}

at(pointer) := "" if pointer == ""

at(pointer) := concat(" ", [" at", pointer]) if pointer != ""

# Whether a member that may be left out has the right type where it is given.
optional_boolean(parent, name) if object.get(parent, name, null) in {true, false, null}

optional_string(parent, name) if is_null(object.get(parent, name, null))

optional_string(parent, name) if is_string(parent[name])

optional_object(parent, name) if is_null(object.get(parent, name, null))

optional_object(parent, name) if is_object(parent[name])

optional_array(parent, name) if is_null(object.get(parent, name, null))

optional_array(parent, name) if is_array(parent[name])

optional_in(parent, name, values) if object.get(parent, name, null) in (values | {null})

optional_counter(parent, name) if is_null(object.get(parent, name, null))

optional_counter(parent, name) if {
	n := parent[name]
	is_number(n)
	n >= 0
	n <= 18446744073709551615
	n == floor(n)
}

nonempty_text(value) if {
	is_string(value)
	value != ""
}

# The members of an object that its schema does not know, as problems.
unknown_members(parent, pointer, known) := {problem |
	some name in (object.keys(parent) - known)
	problem := [
		concat("/", [pointer, replace(replace(name, "~", "~0"), "/", "~1")]),
		concat(" ", ["only", concat(", ", sort(known))]),
	]
}

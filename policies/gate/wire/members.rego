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

# METADATA
# title: Where a problem is, in words
# scope: document
at(pointer) := "" if pointer == ""

at(pointer) := concat(" ", [" at", pointer]) if pointer != ""

# METADATA
# title: A member that may be left out is true or false
# scope: document
optional_boolean(parent, name) if object.get(parent, name, null) in {true, false, null}

# METADATA
# title: A member that may be left out is a text
# scope: document
optional_string(parent, name) if is_null(object.get(parent, name, null))

optional_string(parent, name) if is_string(parent[name])

# METADATA
# title: A member that may be left out is an object
# scope: document
optional_object(parent, name) if is_null(object.get(parent, name, null))

optional_object(parent, name) if is_object(parent[name])

# METADATA
# title: A member that may be left out is an array
# scope: document
optional_array(parent, name) if is_null(object.get(parent, name, null))

optional_array(parent, name) if is_array(parent[name])

# METADATA
# title: A member that may be left out is one of some values
# scope: document
optional_in(parent, name, values) if object.get(parent, name, null) in (values | {null})

# METADATA
# title: A member that may be left out is an integer of 64 bits without a sign
# scope: document
optional_counter(parent, name) if is_null(object.get(parent, name, null))

optional_counter(parent, name) if {
	n := parent[name]
	is_number(n)
	n >= 0
	n <= 18446744073709551615
	n == floor(n)
}

# METADATA
# title: A value is a text that is not empty
# scope: document
nonempty_text(value) if {
	is_string(value)
	value != ""
}

# METADATA
# title: The members of an object that its schema does not know, as problems
# scope: document
unknown_members(parent, pointer, known) := {problem |
	some name in (object.keys(parent) - known)
	problem := [
		concat("/", [pointer, replace(replace(name, "~", "~0"), "/", "~1")]),
		concat(" ", ["only", concat(", ", sort(known))]),
	]
}

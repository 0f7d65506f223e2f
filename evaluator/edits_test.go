package evaluator

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/policies"
)

// What people write into a policy: conditions, by how they look at a call.
var editConditions = []string{
	// names compared
	`input.tool.name == "a"`,
	`"mcp_x" == input.tool.name`,
	`input.tool.name in {"a", "b", "mcp_y"}`,
	`input.tool.name in ["a", "zz"]`,
	`input.tool.name != "a"`,
	`not input.tool.name == "a"`,
	`not input.tool.name in {"a", "b"}`,
	`some n in ["a", "b"]; n == input.tool.name`,
	`{"a", "b"}[input.tool.name]`,
	`{"a": true, "b": false}[input.tool.name]`,
	`[input.tool.name, input.taint] == ["a", "tainted"]`,
	`[input.tool.name, input.taint] in {["a", "clean"], ["b", "tainted"]}`,
	`[n, "tainted"] = [input.tool.name, input.taint]; n == "b"`,
	`x := input.tool; x.name == "b"`,
	`input.tool.name == input.policy.veto`,
	`input.tool == {"name": "a", "origin": "unknown"}`,
	`object.get({"a": 1}, input.tool.name, 0) == 1`,
	`object.get(input, ["tool", "name"], "") == "a"`,
	`concat("-", ["x", input.tool.name]) == "x-a"`,
	`sprintf("%s!", [input.tool.name]) == "a!"`,
	`every n in ["a", "b"] { n != input.tool.name }`,
	`every c in [input.tool.name] { c in {"a", "b"} }`,
	`is_blocked(input.tool.name)`,
	`one_of(input.tool.name, {"a", "b"})`,
	`shape([input.tool.name, input.taint]) == "bare a"`,
	`shape([input.tool.name, input.taint])`,
	`input.tool.name in listed`,
	`listed[input.tool.name]`,
	`owners[input.tool.name] == "ops"`,
	`rated[input.tool.name] > 1`,
	`count([1 | input.tool.name == "a"]) == 1`,
	// names taken apart
	`startswith(input.tool.name, "mcp_")`,
	`endswith(input.tool.name, "_x")`,
	`contains(input.tool.name, "c")`,
	`regex.match("^[a-c]$", input.tool.name)`,
	`glob.match("mcp_*", [], input.tool.name)`,
	`count(input.tool.name) > 3`,
	`lower(input.tool.name) == "a"`,
	`split(input.tool.name, "_")[0] == "mcp"`,
	`substring(input.tool.name, 0, 1) == "m"`,
	`input.tool.name > "b"`,
	`strings.any_prefix_match(input.tool.name, ["a", "mcp"])`,
	`some p in ["mcp_", "z"]; startswith(input.tool.name, p)`,
	`every p in ["mcp_", "m"] { startswith(input.tool.name, p) }`,
	`indexof(input.tool.name, "x") >= 0`,
	`trim_prefix(input.tool.name, "mcp_") == "x"`,
	`max([input.tool.name, "b"]) == "b"`,
	`sort([input.tool.name, "b"])[0] == "b"`,
	`count({input.tool.name, "a"}) == 1`,
	`{input.tool.name} == {"a"}`,
	`count({n | n := ["a", input.tool.name][_]}) == 1`,
	`{input.tool.name: 1}.a == 1`,
	`count({input.tool.name: 1, "a": 2}) == 2`,
	`to_number(input.tool.name) == 7`,
	`json.is_valid(input.tool.name)`,
	`some i, c in split(input.tool.name, ""); i == 0; c == "a"`,
	// other texts
	`input.policy.veto == "x"`,
	`input.policy.veto != ""`,
	`startswith(input.policy.veto, "x")`,
	`count(input.policy.veto) == 0`,
	`input.policy.transform.note == "x"`,
	`input.policy.transform.note`,
	`contains(input.policy.transform.note, "a")`,
	`input.policy.transform.arguments.path == "/etc"`,
	`input.policy.transform.arguments == {}`,
	`count(input.policy.transform.arguments) > 1`,
	`object.get(input.policy.transform, ["arguments", "path"], "") == "/etc"`,
	`"path" in object.keys(input.policy.transform.arguments)`,
	`some k, v in input.policy.transform.arguments; v == "/etc"`,
	`is_object(input.policy.transform.arguments)`,
	`input.policy.transform.arguments.n > 1`,
	`"x" in input.policy.transform.arguments.list`,
	// the whole document
	`walk(input, [_, v]); v == "a"`,
	`contains(json.marshal(input), "etc")`,
	`some k, v in input.tool; k != "origin"; v == "a"`,
	`count(input.tool) > 2`,
	`count(input) == 4`,
	`object.union(input.tool, {"x": 1}).name == "b"`,
	`object.subset(input.tool, {"name": "a"})`,
	`json.filter(input, ["tool/name"]) == {"tool": {"name": "a"}}`,
	// the finite part
	`input.tool.read_only == true`,
	`input.tool.origin == "fetcher"`,
	`"arbitrary-egress" in input.grant.base`,
	`count(input.grant.base) < 3`,
	`some i; input.grant.base[i] == "local-write"`,
	`taint.granted > 8`,
	`not grant.base == 31`,
	`missing in {8, 24}`,
	// clocks, chance and the world
	`time.now_ns() > 0`,
	`time.clock(0)[0] == 0`,
	`rand.intn("x", 1) == 0`,
	`opa.runtime().nothing`,
	`uuid.rfc4122("x") != ""`,
	// data
	`data.gate.settings.blocked[_] == input.tool.name`,
	`data.gate.settings.system == input.tool.name`,
	`data.gate.settings.quota[input.tool.name] > 1`,
	`input.tool.name in data.gate.settings.blocked`,
	`data.gate.settings.nowhere`,
	// with
	`taint.granted > 7 with input.taint as "clean"`,
	`one_of("a", {"b"}) with input.tool.name as "b"`,
	`named_a with input.tool.name as "a"`,
	`not named_a with input.tool.name as input.policy.veto`,
	`grant.base == 0 with data.gate.facts.grantable as {}`,
	`named_a with data.gate.settings as {"x": input.tool.name}`,
	`is_blocked("q") with is_blocked as true`,
	`count([]) == 7 with count as 7`,
	// texts in sets, and what is looked up in lists and by numbers
	`s := {input.tool.name}; s[input.tool.name]`,
	`s := {[input.tool.name, 1]}; s[[input.tool.name, 1]]`,
	`named[input.tool.name]`,
	`some n in named; n == "a"`,
	`data.gate.facts.names[input.tool.name]`,
	`data.gate.settings.list[input.tool.name]`,
	`data.gate.settings.list["0"]`,
	`data.gate.settings.numbers[1]`,
	`object.get({"s": {input.tool.name}}, ["s", input.tool.name], 9) == "a"`,
	`[x | some x in {"z", "b", input.taint}] == ["b", input.taint, "z"]`,
	`[x | some x in {"z", "b", input.taint}] == ["b", "clean", "z"]`,
	// arguments that are changed
	`read_write with input.policy.transform.arguments.path as "/x"`,
	`count(input.policy.transform.arguments) == 1 with input.policy.transform.arguments.z as "rw"`,
	`read_write with data.gate.settings as input.policy.transform.arguments with data.gate.settings.y as 1`,
	// what the planner is known to do in its own way
	`[1 | to_number(input.tool.name) > 3]`,
	`not [1 | to_number(input.tool.name) > 3]`,
	`k := "c"; l := "d"; data.gate.call.tree[k][l] == 2`,
	`branched.y == 2`,
	`input.taint == "clean"; input.tool.name == "a\u0000b"`,
	`input.taint == "tainted"; input.tool.name in {"a", "b"}`,
	// helpers that shadow, and odd but legal forms
	`some taint in ["a", "b"]; taint == input.tool.name`,
	`missing_tool(missing, input.tool.name)`,
	`f := input.tool.name; g := f; g == "mcp_x"`,
	`a := [input.tool.name, "z"]; a[0] == "a"`,
	`o := {"k": {"n": input.tool.name}}; o.k.n == "b"`,
	`o := {"k": input.tool.name}; some x in o; x == "a"`,
	`some x, y in {"k": input.tool.name}; x == "k"`,
	`[x | some x in [input.tool.name]] == ["a"]`,
	`{x: y | some x, y in [input.tool.name]}[0] == "a"`,
	`input["tool"]["name"] == "a"`,
	`is_string(input.tool.name)`,
	`type_name(input.tool) == "object"`,
	`array.concat([input.tool.name], ["a"])[1] == "a"`,
	`array.slice([input.tool.name, "b"], 1, 2) == ["b"]`,
	`numbers.range(1, 3)[_] == 2`,
	`false`,
	`data.gate.call.listed[input.tool.name]`,
	`data.gate.call[input.tool.name]`,
	`{"a": 1, "b": 2}[x] == 2; x == input.tool.name`,
	`1 / (count(input.grant.base) - 3) > 0`,
}

// And what the answer is made of.
var editReasons = []string{
	`"no"`, `""`, `hex.decode("ff")`, `hex.decode("fe")`,
	`input.tool.name`,
	`sprintf("%s is stopped", [input.tool.name])`,
	`sprintf("%v lacks %d", [input.tool.name, missing])`,
	`sprintf("%q", [input.tool.name])`,
	`sprintf("%5s|%-5s", [input.tool.name, "x"])`,
	`sprintf("%v", [[input.tool.name]])`,
	`sprintf("%s", [input.tool.name, "extra"])`,
	`sprintf("100%% %s", [input.tool.name])`,
	`sprintf("%d", [input.tool.name])`,
	`$"{input.tool.name} is stopped"`,
	`$"{input.tool.name}{missing} {input.policy.veto}"`,
	`$"{[input.tool.name]}"`,
	`concat(" ", ["stop", input.tool.name, "now"])`,
	`concat(",", {input.tool.name, "m"})`,
	`concat(",", sort([input.tool.name, "m"]))`,
	`concat(",", [x | some x in {input.tool.name, "m"}])`,
	`concat(input.tool.name, ["x", "y"])`,
	`upper(input.tool.name)`,
	`replace(input.tool.name, "a", "b")`,
	`trim(input.tool.name, "a")`,
	`format_int(count(input.tool.name), 10)`,
	`substring(input.tool.name, 0, 2)`,
	`split(input.tool.name, "_")[0]`,
	`strings.reverse(input.tool.name)`,
	`json.marshal({"t": input.tool.name})`,
	`object.get(input.policy, "veto", input.tool.name)`,
	`object.get(input.policy.transform, "note", "none")`,
	`input.policy.veto`,
	`input.policy.transform.note`,
	`json.marshal(input.policy.transform.arguments)`,
	`input.policy.transform.arguments.path`,
	`escalation.reason(missing, input.tool.name)`,
	`escalation.reason(8, sprintf("<%s>", [input.tool.name]))`,
	`label[input.taint]`,
	`label_of(input.tool.name)`,
	`[input.tool.name, "x"][count(grant.unknown)]`,
}

// What stands beside, for the conditions that need it.
const editHelpers = `
is_blocked("a")

is_blocked("mcp_x") if input.taint == "tainted"

is_blocked(name) if name == "b"

one_of(name, names) if name in names

shape([name, "tainted"]) := sprintf("bare %s", [name])

shape(["b", taint]) := taint if taint != "tainted"

sentence := escalation.reason(8, "any")

listed contains name if some name in ["a", "mcp_x"]

listed contains input.tool.name if input.taint == "tainted"

owners[name] := "ops" if some name in ["a", "b"]

owners[input.tool.name] := "dev" if input.tool.name == "zz"

rated[name] := n if some n, name in ["a", "b", "mcp_x"]

named_a if input.tool.name == "a"

named contains input.tool.name

read_write if input.policy.transform.arguments.mode == "rw"

read_write if input.policy.transform.arguments.path == "/x"

missing_tool(missing, tool) if {
	missing == 8
	tool == "a"
}

label := {"clean": "clean conversation", "tainted": sprintf("tainted by %s", [input.tool.name])}

label_of("a") := "the letter" if {
	input.taint == "tainted"
} else := "mcp"

label_of(name) := name if name != "a"
`

const editSettings = `{"system": "this system", "blocked": ["a", "zz"], "quota": {"a": 2, "b": 1},
	"list": [10, 20], "numbers": {"1": true}}`

// Helpers that turn tables off altogether stand in a few of the edits only.
var editOddities = []string{
	"\ntree.a[x] := 1 if some x in [\"b\"]\n\ntree.c.d := 2\n",
	"\nbranched.y := 1 if {\n\tinput.taint == \"clean\"\n} else := 2\n\nbranched[x] := 1 if some x in [\"z\"]\n",
}

// anEdit returns a copy of the policies with one to three random edits, and
// what they are.
func anEdit(t testing.TB, seed uint64) (fstest.MapFS, string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	tree := fstest.MapFS{}
	for _, name := range treeFiles(t) {
		text, err := fs.ReadFile(policies.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		tree[name] = &fstest.MapFile{Data: text}
	}
	const file = "gate/call/call.rego"
	tree["gate/settings/data.json"] = &fstest.MapFile{Data: []byte(editSettings)}
	text := string(tree[file].Data) + editHelpers
	for _, oddity := range editOddities {
		if r.IntN(12) == 0 {
			text += oddity
		}
	}
	var edits []string
	for range 1 + r.IntN(3) {
		var from, to string
		switch r.IntN(8) {
		case 0, 1, 2: // another step before all others
			condition := pick(editConditions)
			switch r.IntN(4) {
			case 0:
				condition += "\n\t" + pick(editConditions)
			case 1: // a text that only shows if the condition holds, or if it does not
				condition += "\n\tstartswith(input.tool.name, \"x\")"
			case 2:
				if !strings.Contains(condition, ";") && !strings.HasPrefix(condition, "not ") && !strings.HasPrefix(condition, "some ") && !strings.HasPrefix(condition, "every ") {
					condition = "not " + condition + "\n\tstartswith(input.tool.name, \"x\")"
				}
			}
			from = `answer := {"outcome": "deny", "reason": input.policy.veto} if {`
			outcome := pick([]string{"deny", "deny", "escalate"})
			to = fmt.Sprintf("answer := {\"outcome\": %q, \"reason\": %s} if {\n\t%s\n} else := {\"outcome\": \"deny\", \"reason\": input.policy.veto} if {",
				outcome, pick(editReasons), strings.ReplaceAll(condition, "; ", "\n\t"))
		case 3: // another way to ask for a person
			from = "asks_for_person if input.policy.requires_human == true\n"
			to = from + "\nasks_for_person if {\n\t" + strings.ReplaceAll(pick(editConditions), "; ", "\n\t") + "\n}\n"
		case 4: // other sentences
			from = `"reason": escalation.reason(missing, input.tool.name)`
			to = `"reason": ` + pick(editReasons)
		case 5: // other notes and arguments
			if r.IntN(2) == 0 {
				from = `"note": input.policy.transform.note`
				to = `"note": ` + pick(editReasons)
				break
			}
			from = `"arguments": input.policy.transform.arguments`
			to = `"arguments": ` + pick([]string{`{}`, `{"t": input.tool.name}`,
				`object.union(input.policy.transform.arguments, {"t": input.tool.name})`,
				`object.union({"t": 1}, input.policy.transform.arguments)`,
				`object.remove(input.policy.transform.arguments, ["path"])`,
				`{"wrapped": input.policy.transform.arguments}`,
				`json.patch(input.policy.transform.arguments, [{"op": "add", "path": "/t", "value": 1}])`})
		case 6: // warnings for every answer
			from = "default warnings := {}\n\nwarnings := "
			to = "warnings := {\"warnings\": [" + pick(editReasons) + "]} if {\n\tcount(grant.unknown) == 0\n\t" +
				strings.ReplaceAll(pick(editConditions), "; ", "\n\t") + "\n}\n\n" + from
		default: // a second definition, which conflicts if it holds beside the first
			from = "# METADATA\n# title: The verdict asks"
			to = "answer := {\"outcome\": \"deny\", \"reason\": " + pick(editReasons) + "} if {\n\t" +
				strings.ReplaceAll(pick(editConditions), "; ", "\n\t") + "\n}\n\n" + from
		}
		if strings.Count(text, from) == 1 {
			text = strings.Replace(text, from, to, 1)
			edits = append(edits, to)
		}
	}
	tree[file] = &fstest.MapFile{Data: []byte(text)}
	return tree, strings.Join(edits, "\n---\n")
}

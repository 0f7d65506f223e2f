package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/fixtures"
	"github.com/opa-gate/opa-gate/internal/race"
	"github.com/opa-gate/opa-gate/wire"
)

const fetch = `{"tool":{"name":"web_fetch","origin":"fetcher","read_only":false,"destructive":false,"open_world":true},` +
	`"grant":{"base":["local-read","arbitrary-egress"]},"taint":"tainted"}`

func rewrite(arguments string) string {
	return transform(`{"kind":"rewrite","arguments":` + arguments + `}`)
}

func named(name string) string { return `{"tool":{"name":` + name + `},"taint":"clean"}` }

func nested(levels int) string { // in all, with the four around them
	return rewrite(`{"a":` + strings.Repeat("[", levels-4) + strings.Repeat("]", levels-4) + `}`)
}

// ordinary is documents that must take the fast road.
func ordinary() []string {
	const null = `{"tool":{"name":"t","origin":null,"read_only":null,"destructive":null,"open_world":null},"grant":null,"taint":"clean",` +
		`"policy":null}`
	return []string{
		minimal, fetch, null,
		" \t\r\n{ \"taint\" : \"clean\" ,\n\t\"tool\" : { \"name\" : \"t\" } }\r\n ",
		with(`"grant":{}`), with(`"grant":{"base":null}`), with(`"grant":{"base":[ ]}`),
		with(`"grant":{"base":["x","local-write","grant-admin","local-write","lo\u0063al-read","\u0078","","é"]}`),
		with(`"policy":{}`), with(`"policy":{"veto":"","requires_human":true,"sandbox_escalation":true}`),
		with(`"policy":{"veto":null,"requires_human":null,"sandbox_escalation":false,"transform":null}`),
		with(`"policy":{"veto":"a \"quoted\" \\ text\/\b\f\n\r\t, naïve \u65e5\u672c \ud83d\ude42 🙂 \u0000"}`),
		with(`"policy":{"veto":"` + strings.Repeat("long \\n", 1000) + `"}`),
		named(`"\u0000"`), named(`"ñ"`), named("\"\x7f\ufffd\u2028\""),
		transform(`{"kind":"none"}`), transform(`{"kind":"none","arguments":null,"note":null}`),
		transform(`{"kind":"inject_context","note":"n"}`), transform(`{"note":"","arguments":null,"kind":"inject_context"}`),
		rewrite(`{}`), rewrite(" \n{ \"z\" : 9007199254740993, \"a\" : [1e3, -2.0E+9999, {}, \"]}\", null, true]\t} "),
		transform(`{"arguments":{"a":{"a":1},"b":"\u0061\\\""},"note":null,"kind":"rewrite"}`),
		rewrite(`{"n":` + strings.Repeat("9", 1000) + `}`), nested(wire.MaxDepth),
	}
}

// hostile is documents that the two roads could take for different things.
func hostile() []string {
	docs := []string{
		"", " ", "{", "}", "null", "[]", "{}", "\ufeff" + minimal, minimal + "x", minimal + minimal, minimal + "\x00", "\x00" + minimal,
		minimal + "\v", strings.TrimSuffix(minimal, "}") + ",}", strings.Replace(minimal, ",", ",,", 1), strings.Replace(minimal, ":", "::", 1),
		with(`"taint":"clean"`), with(`"tool":{"name":"t"}`), with(`"ta\u0069nt":"tainted"`), with(`"tool\u0000":1`), with(`"":1`),
		with(`"grant":null,"grant":null`), with(`"policy":null,"policy":{"veto":""}`), with(`"Policy":{}`),
		`{"tool":{"name":"t"},"t\u0061int":"clean"}`, `{"tool":{"n\u0061me":"t"},"taint":"clean"}`, `{"tool":{"name":"t"},"taint":"cle\u0061n"}`,
		`{"tool":{"name":"t","origin":"fetch\u0065r"},"taint":"clean"}`, `{"tool":{"name":"t","origin":""},"taint":"clean"}`,
		`{"tool":{"name":"t","origin":"` + strings.Repeat("fetcher", 100) + `"},"taint":"clean"}`,
		`{"tool":{"name":"t","name":"u"},"taint":"clean"}`, `{"tool":{"name":null},"taint":"clean"}`, `{"tool":{},"taint":"clean"}`,
		`{"tool":{"name":"t","read_only":true,"read_only":null},"taint":"clean"}`, `{"tool":{"name":"t","read_only":tru},"taint":"clean"}`,
		`{"tool":{"name":"t","read_only":truex},"taint":"clean"}`, `{"tool":{"name":"t","read_only":True},"taint":"clean"}`,
		`{"tool":{"name":"t","read_only":"true"},"taint":"clean"}`, `{"tool":{"name":"t","read_only":0},"taint":"clean"}`,
		`{"taint":"clean","tool":null}`, `{"tool":{"name":"t"},"taint":null}`, `{"tool":{"name":"t"},"taint":""}`, `{"tool":{"name":"t"}}`,
		named(`""`), named(`"\ud800"`), named(`"\ud83dx"`), named(`"\ude42\ud83d"`), named(`"\ud83d\u0041"`), named(`"\x"`), named(`"\u12"`), named(`"\u12g4"`),
		named("\"\xff\""), named("\"\xed\xa0\x80\""), named("\"\xc0\x80\""), named("\"a\nb\""), named("\"a\x1fb\""), named(`"\`), named(`"a`), named(`"\"`),
		with(`"grant":[]`), with(`"grant":{"base":["local-read",]}`), with(`"grant":{"base":[,]}`), with(`"grant":{"base":["a" "b"]}`),
		with(`"grant":{"base":[null]}`), with(`"grant":{"base":["a",1]}`), with(`"grant":{"base":{}}`), with(`"grant":{"base":[],"base":[]}`),
		with(`"grant":{"base":null,"base":[]}`), with(`"grant":{"bas":[]}`), with(`"grant":{"base":[],"x":1}`), with(`"grant":{"base":["a"}`),
		with(`"policy":{"veto":false}`), with(`"policy":{"veto":"a","veto":null}`), with(`"policy":{"requires_human":"true"}`), with(`"policy":[]`),
		with(`"policy":{"vet":""}`), with(`"policy":{"transform":{"kind":"none"},"transform":null}`), with(`"policy":{"transform":"none"}`),
		transform(`{}`), transform(`{"kind":null}`), transform(`{"kind":"Rewrite","arguments":{}}`), transform(`{"kind":"none","kind":"none"}`),
		transform(`{"kind":"rewrite"}`), transform(`{"kind":"rewrite","arguments":null}`), transform(`{"kind":"rewrite","arguments":[]}`),
		transform(`{"kind":"rewrite","arguments":{},"note":""}`), transform(`{"kind":"rewrite","arguments":{},"arguments":{}}`),
		transform(`{"kind":"rewrite","arguments":null,"arguments":{}}`), transform(`{"kind":"none","arguments":{}}`), transform(`{"kind":"none","note":""}`),
		transform(`{"kind":"inject_context"}`), transform(`{"kind":"inject_context","note":null}`), transform(`{"kind":"inject_context","note":"","arguments":{}}`),
		transform(`{"kind":"inject_context","note":"","x":null}`), transform(`{"arguments":{}}`), transform(`{"note":""}`),
		nested(wire.MaxDepth + 1), rewrite(strings.Repeat(`{"a":`, 100000)), rewrite(strings.Repeat(`{"a":`, 253) + "1" + strings.Repeat("}", 253)),
		rewrite(strings.Repeat(`{"a":`, 254) + "1" + strings.Repeat("}", 254)),
		`{"policy":{"transform":{"arguments":{"a":`,
	}
	for _, arguments := range []string{
		`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a":1]`, `{"a":[1}}`, `{]`, `{"a" 1}`, `{a:1}`, `{"a":1}}`, `{"a":1}{`, `{"a":1} {"b":2}`, `{"a":1}1`,
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `{"b":[{"a":{},"b":0,"a":[]}]}`, `{"a":1,"b":2,"A":3}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", "{\"\xff\":1}", `{"\ud800":1}`,
		"{\"a\":\"\n\"}", "{\"a\":\x00}", `{"a":nul}`, `{"a":nulll}`, `{"a":NaN}`, `{"a":Infinity}`, "{\"a\":1//\n}", `{"a":'b'}`, `{"a":"b}`, `{"a":"b\"}`,
	} {
		docs = append(docs, rewrite(arguments))
	}
	for _, number := range []string{
		"-", "+1", "01", "1.", ".5", "1e", "1e+", "1e9999", "1E-9999", "1e+9999", "1e10000", "1e-10000", "1e00001", "1e-00000000009", "1e+99999999999999999999", "0e0",
		"-0", "1-1", "1e1e1", "1.2.3", "0x10", "1_000", strings.Repeat("9", 1001), "0." + strings.Repeat("9", 998), "0." + strings.Repeat("9", 999), "-" + strings.Repeat("9", 1000),
	} {
		docs = append(docs, rewrite(`{"a":`+number+`}`), rewrite(`{"a":[`+number+`,"b"]}`), with(`"policy":{"veto":`+number+`}`))
	}
	for object, given := range map[string][]string{ // every member twice, as null and as a value
		`{"tool":{%s,"name":"t"},"taint":"clean"}`: {`"origin":"fetcher"`, `"read_only":true`, `"destructive":true`, `"open_world":true`, `"name":"u"`},
		with(`"policy":{%s}`):                      {`"veto":""`, `"requires_human":true`, `"sandbox_escalation":true`, `"transform":{"kind":"none"}`},
		with(`"grant":{%s}`):                       {`"base":["local-read"]`},
		with(`%s`):                                 {`"grant":{}`, `"policy":{}`, `"taint":"clean"`, `"tool":{"name":"t"}`},
		transform(`{"kind":"none",%s}`):            {`"arguments":null`, `"note":null`, `"kind":"none"`},
		transform(`{"kind":"rewrite",%s}`):         {`"arguments":{}`},
		transform(`{"kind":"inject_context",%s}`):  {`"note":""`},
	} {
		for _, strange := range []string{`"x":`, `"x":null`, `"x":1`, `"x":{}`, `"x"`, ``} {
			docs = append(docs, fmt.Sprintf(object, strange))
		}
		for _, member := range given {
			name, _, _ := strings.Cut(member, ":")
			null := name + ":null"
			docs = append(docs, fmt.Sprintf(object, name+":"), fmt.Sprintf(object, name), fmt.Sprintf(object, null+"1"))
			for _, twice := range []string{member + "," + member, member + "," + null, null + "," + member, null + "," + null} {
				docs = append(docs, fmt.Sprintf(object, twice))
			}
		}
	}
	for _, many := range []int{8, 9, 16, 17, 64, 65, 1000} {
		var b strings.Builder
		for i := range many {
			fmt.Fprintf(&b, `"m%d":%d,`, i, i)
		}
		docs = append(docs, rewrite(`{`+b.String()+`"last":0}`), rewrite(`{`+b.String()+`"m0":0}`))
	}
	return docs
}

// seeds is everything above and every call of the fixtures.
func seeds(tb testing.TB) [][]byte {
	tb.Helper()
	var docs [][]byte
	for _, doc := range slices.Concat(ordinary(), hostile()) {
		docs = append(docs, []byte(doc))
	}
	suite, err := fixtures.Load(fixtures.Cases())
	if err != nil {
		tb.Fatal(err)
	}
	for _, file := range suite.Files {
		if file.Kind == fixtures.Call {
			for _, c := range file.Cases {
				docs = append(docs, c.Input)
			}
		}
	}
	for _, c := range suite.InvalidCases() {
		docs = append(docs, []byte(c.Text))
	}
	return docs
}

// sameRoads reports a document that the fast road reads otherwise than the
// slow one. The slow one may well read what the fast one does not.
func sameRoads(t *testing.T, data []byte) {
	t.Helper()
	doc := bytes.Clone(data)
	got := wire.ReadCall(doc)
	if !bytes.Equal(doc, data) {
		t.Fatalf("%.300q: the reader wrote to the document", data)
	}
	clear(doc) // the call must outlive its document
	want, err := wire.DecodeCall(data)
	if got != nil && (err != nil || !reflect.DeepEqual(got, want)) {
		t.Fatalf("%.300q:\n fast %+v\n slow %+v, %v", data, got, want, err)
	}
	whole, wholeErr := wire.ParseCall(data)
	if !reflect.DeepEqual(whole, want) || !reflect.DeepEqual(wholeErr, err) {
		t.Fatalf("%.300q:\n got %+v, %v\nwant %+v, %v", data, whole, wholeErr, want, err)
	}
}

func TestRoadsAgree(t *testing.T) {
	for _, doc := range seeds(t) {
		sameRoads(t, doc)
	}
}

// Without this the fast road could be closed and nobody would notice.
func TestOrdinaryDocumentsAreFast(t *testing.T) {
	for _, doc := range ordinary() {
		if wire.ReadCall([]byte(doc)) == nil {
			t.Errorf("takes the slow road: %.300q", doc)
		}
	}
	suite, err := fixtures.Load(fixtures.Cases())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range suite.Files {
		if file.Kind != fixtures.Call {
			continue
		}
		for _, c := range file.Cases {
			if wire.ReadCall(c.Input) == nil {
				t.Errorf("%s, %s: takes the slow road", file.Name, c.Name)
			}
		}
	}
}

// The length decides alone: nothing behind the bound is looked at.
func TestReadCallBound(t *testing.T) {
	doc := minimal + strings.Repeat(" ", wire.MaxBytes-len(minimal)+1)
	if wire.ReadCall([]byte(doc)) != nil {
		t.Error("a document that is too long was read")
	}
	if wire.ReadCall([]byte(doc[1:])) != nil || wire.ReadCall([]byte(doc[:wire.MaxBytes])) == nil {
		t.Error("the bound is another one")
	}
}

// Every list of names is read as capability.ParseGrant reads it.
func TestGrantNames(t *testing.T) {
	var all []string
	for _, d := range capability.Taxonomy() {
		all = append(all, d.Name)
	}
	all = append(all, "", "x", "Local-Read", "local-read ", "local", "naïve", `a"b`)
	for i := range all {
		for j := range all {
			for n := range 3 {
				names := []string{all[i], all[j], all[(i+j)%len(all)]}[:n]
				list, err := json.Marshal(names)
				if err != nil {
					t.Fatal(err)
				}
				c := wire.ReadCall([]byte(with(`"grant":{"base":` + string(list) + `}`)))
				if c == nil || !reflect.DeepEqual(c.Grant, capability.ParseGrant(names)) {
					t.Fatalf("%q: got %+v", names, c)
				}
			}
		}
	}
}

// mutants calls do with every document that is one step from doc: a byte
// deleted, given twice, swapped with the next or replaced, or the text cut.
func mutants(doc string, do func([]byte)) {
	const strange = "\x00\x1f \n\"\\{}[],:0-9eEntu\x7f\xc3\xff"
	for i := range len(doc) {
		head, b, tail := doc[:i], doc[i:i+1], doc[i+1:]
		do([]byte(head))
		do([]byte(head + tail))
		do([]byte(head + b + b + tail))
		if tail != "" {
			do([]byte(head + tail[:1] + b + tail[1:]))
		}
		for j := range len(strange) {
			do([]byte(head + strange[j:j+1] + tail))
			do([]byte(head + strange[j:j+1] + b + tail))
		}
	}
}

func TestMutants(t *testing.T) {
	docs := []string{
		`{"tool":{"name":"t","origin":"fetcher","read_only":false,"open_world":null},"grant":{"base":["local-read","x"]},"taint":"tainted"}`,
		`{"taint":"clean","tool":{"name":"é\u00e9\n"},"policy":{"veto":"","requires_human":true,"transform":null}}`,
		rewrite(` {"a":[1.5e+10,-2,{"a":"}\"\ud83d\ude42"}],"b":null}`),
		transform(`{"note":"n","arguments":null,"kind":"inject_context"}`),
	}
	if testing.Short() {
		docs = docs[2:3]
	}
	n := 0
	for _, doc := range docs {
		mutants(doc, func(data []byte) { sameRoads(t, data); n++ })
	}
	t.Logf("%d documents", n)
}

func FuzzRoads(f *testing.F) {
	for _, doc := range seeds(f) {
		if len(doc) <= 2000 {
			f.Add(doc)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameRoads(t, data) })
}

func TestReadCallAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("pools are at times empty under the race detector")
	}
	for doc, most := range map[string]float64{minimal: 2, fetch: 2, transform(`{"kind":"inject_context","note":"n"}`): 3} {
		data := []byte(doc)
		if n := testing.AllocsPerRun(100, func() { wire.ReadCall(data) }); n > most {
			t.Errorf("%s: %v allocations, want at most %v", doc, n, most)
		}
	}
}

func BenchmarkParseCall(b *testing.B) {
	for _, doc := range []struct{ name, text string }{
		{"fetch", fetch}, {"minimal", minimal},
		{"veto", with(`"policy":{"veto":"not on a \"Friday\", naïve"}`)},
		{"rewrite", rewrite(`{"path":"/tmp/a","bytes":9007199254740993,"flags":["a",{"b":null}]}`)},
	} {
		data := []byte(doc.text)
		for road, parse := range map[string]func([]byte) (*capability.Call, error){"fast": wire.ParseCall, "slow": wire.DecodeCall} {
			b.Run(doc.name+"/"+road, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if _, err := parse(data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

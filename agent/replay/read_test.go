package replay

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// show writes an event on one line.
func show(e *Event) string {
	text := fmt.Sprintf("%d %v session=%s task=%s id=%s tool=%s text=%q args=%s", e.Line, e.Kind, e.Session, e.Task, e.ID, e.Tool, e.Text, e.Arguments)
	if e.Stated != nil {
		text += fmt.Sprintf(" stated=%+v", *e.Stated)
	}
	return text
}

func TestRead(t *testing.T) {
	tests := map[string]struct {
		text    string
		events  []string
		skipped []string // LINE: the beginning of the reason
		other   int
	}{
		"events": {`{"kind":"prompt","session":"s","task":"t","text":"hello"}
{"kind":"call","session":"s","task":"t","id":"1","tool":"send","arguments":{"to":"a"}}

{"kind":"result","session":"s","id":"1"}`,
			[]string{`1 prompt session=s task=t id= tool= text="hello" args=`,
				`2 call session=s task=t id=1 tool=send text="" args={"to":"a"}`,
				`4 result session=s task= id=1 tool= text="" args=`}, nil, 0},
		"a stated profile": {`{"kind":"call","tool":"send","arguments":null,"profile":{"origin":"fetcher","read_only":true,"taints":true,"effect":"outside","aims":["to"]}}`,
			[]string{`1 call session= task= id= tool=send text="" args= stated={Profile:{Origin:fetcher ReadOnly:2 Destructive:0 OpenWorld:0} Taints:true Steering:{Effect:outside Aims:[to] OutsideIf:[]} Policy:{Vetoed:false Veto: RequiresHuman:false SandboxEscalation:false Transform:{Kind:none Arguments:[] Note:}}}`}, nil, 0},
		"what cannot be used": {`{"kind":"call"}
{"kind":"result"}
{"kind":"called","tool":"x"}
{"kind":"call","tool":"x","sesion":"s"}
{"kind":"call","tool":"x","profile":{"origin":"elsewhere"}}
{"kind":"call","tool":"x","profile":{"effect":"none"}}
{"kind":"call","tool":"x","tool":"y"}
[1]
{"event":"x"}
nonsense
{"kind":3}
{"kind":"call","tool":"ok"}
{"kind":"call","to`,
			[]string{`12 call session= task= id= tool=ok text="" args=`},
			[]string{"1: it is a call without a tool", "2: it is a result without the id", `3: there is no kind "called"`, "4: it is no event: /sesion: there is no such member",
				`5: "elsewhere" is no origin`, `6: "none" is no effect`, "7: it is not JSON, or a member", "8: it is not an object",
				"9: it is foreign", "10: it is not JSON", "11: it is no event: /kind: expected a string, got a number", "13: it is torn"}, 0},
		"a transcript": {`{"type":"summary","summary":"x","leafUuid":"u"}
{"type":"user","sessionId":"s","userType":"external","isSidechain":false,"message":{"role":"user","content":"write to ann"}}
{"type":"assistant","sessionId":"s","message":{"role":"assistant","content":[{"type":"thinking","thinking":"…"},{"type":"text","text":"I will"},{"type":"tool_use","id":"toolu_1","name":"WebFetch","input":{"url":"u"}}]}}
{"type":"user","sessionId":"s","toolUseResult":{"x":1},"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"do evil"}],"is_error":false}]}}
{"type":"user","sessionId":"s","message":{"role":"user","content":[{"type":"text","text":"and"},{"type":"image"},{"type":"text","text":"bob"}]}}
{"type":"system","subtype":"compact_boundary"}`,
			[]string{`2 prompt session=s task= id= tool= text="write to ann" args=`,
				`3 call session=s task= id=toolu_1 tool=WebFetch text="" args={"url":"u"}`,
				`4 result session=s task= id=toolu_1 tool= text="" args=`,
				`5 prompt session=s task= id= tool= text="and\nbob" args=`}, nil, 2},
		"what a person did not type": {`{"type":"user","isMeta":true,"message":{"content":"a@evil.example"}}
{"type":"user","isCompactSummary":true,"message":{"content":"a@evil.example"}}
{"type":"user","isSidechain":true,"message":{"content":"a@evil.example"}}
{"type":"user","isVisibleInTranscriptOnly":true,"message":{"content":"a@evil.example"}}
{"type":"user","userType":"internal","message":{"content":"a@evil.example"}}
{"type":"user","toolUseResult":"x","message":{"content":"a@evil.example"}}
{"type":"user","message":{"content":" <local-command-stdout>a@evil.example</local-command-stdout>"}}
{"type":"user","message":{"content":[{"type":"text","text":"hello"},{"type":"text","text":"<system-reminder>a@evil.example"}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":"x"},{"type":"text","text":"a@evil.example"}]}}
{"type":"assistant","message":{"content":"a@evil.example"}}`,
			[]string{`9 result session= task= id=1 tool= text="" args=`}, nil, 9},
		"a broken transcript": {`{"type":"user"}
{"type":"assistant","message":{"content":3}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"1"}]}}
{"type":"user","message":{"content":[3]}}
{"type":4}
{"type":"user","sessionId":5,"message":{"content":"x"}}`, nil,
			[]string{"1: it is a message without content", "2: it is a message whose content", "3: it is a call without a tool", "4: it has blocks",
				"5: its type is", "6: its type is"}, 0},
		"a call by a side chain": {`{"type":"assistant","isSidechain":true,"message":{"content":[{"type":"tool_use","id":"1","name":"Bash","input":{}}]}}`,
			[]string{`1 call session= task= id=1 tool=Bash text="" args={}`}, nil, 0},
		"nothing": {" \n\n", nil, nil, 0},
		"a long line": {`{"kind":"prompt","text":"` + strings.Repeat("x", MaxLine) + "\"}\n" + `{"kind":"call","tool":"x"}`,
			[]string{`2 call session= task= id= tool=x text="" args=`}, []string{"1: it is longer than"}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			trace, err := Read(iotest.DataErrReader(strings.NewReader(test.text)))
			if err != nil {
				t.Fatal(err)
			}
			if len(trace.Events) != len(test.events) || len(trace.Skipped) != len(test.skipped) || trace.Other != test.other {
				t.Fatalf("%d events, %+v skipped, %d other", len(trace.Events), trace.Skipped, trace.Other)
			}
			for i, want := range test.events {
				if got := show(&trace.Events[i]); got != want {
					t.Errorf("event %d is\n%s, want\n%s", i, got, want)
				}
			}
			for i, want := range test.skipped {
				if got := fmt.Sprintf("%d: %s", trace.Skipped[i].Line, trace.Skipped[i].Reason); !strings.HasPrefix(got, want) {
					t.Errorf("left out is %q, want %q", got, want)
				}
			}
		})
	}
}

func TestReadFails(t *testing.T) {
	broken := errors.New("the disk is gone")
	if _, err := Read(io.MultiReader(strings.NewReader("{}\n"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	line := `{"kind":"prompt","text":"` + strings.Repeat("x", MaxLine-100) + "\"}\n"
	if _, err := Read(strings.NewReader(strings.Repeat(line, MaxKept/len(line)+2))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"kind":"call","tool":"x","arguments":{}}` + "\n" + `{"type":"user","message":{"content":[{"type":"text","text":"x"}]}}` + "\n{")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		used := map[int]bool{}
		for _, e := range trace.Events {
			used[e.Line] = true
			if e.Kind == Call && e.Tool == "" || e.Line < 1 {
				t.Errorf("%+v", e)
			}
		}
		if len(used)+len(trace.Skipped)+trace.Other != trace.Lines {
			t.Errorf("%d lines, of which %d are used, %d left out, %d of other kinds", trace.Lines, len(used), len(trace.Skipped), trace.Other)
		}
	})
}

package ledger

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// approval is one for what escalation("t", `{"a":1}`, egress) asks.
func approval(t testing.TB, scope Scope) *Approval {
	t.Helper()
	c := escalation("t", `{"a":1}`, egress).Call
	digest, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	at := newClock().at
	return &Approval{ID: "id", Tool: c.Tool, Digest: digest, Coverage: egress, Session: c.Session, Revision: c.Revision,
		Scope: scope, Reviewer: "ann", At: at, Expires: at.Add(time.Hour)}
}

func sign(t testing.TB, k *Keyring, a *Approval) string {
	t.Helper()
	token, err := k.sign(a)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestCovers(t *testing.T) {
	wide := egress | capability.Set(capability.MutateExternal)
	none := func(*Approval, *Call) {}
	for _, test := range []struct {
		name    string
		change  func(a *Approval, c *Call)
		missing capability.Set
		later   time.Duration
		once    error
		session error
	}{
		{"exactly this", none, egress, 0, nil, nil},
		{"nothing missing", none, 0, 0, nil, nil},
		{"at the last moment", none, egress, time.Hour - 1, nil, nil},
		{"at the end", none, egress, time.Hour, ErrExpired, ErrExpired},
		{"another tool", func(_ *Approval, c *Call) { c.Tool = "T" }, egress, 0, ErrTool, ErrTool},
		{"other arguments", func(_ *Approval, c *Call) { c.Arguments = json.RawMessage(`{"a":1.0}`) }, egress, 0, ErrArguments, nil},
		{"a transform", func(_ *Approval, c *Call) { c.Transform.Kind = capability.InjectContext }, egress, 0, ErrArguments, nil},
		{"another session", func(_ *Approval, c *Call) { c.Session = "s2" }, egress, 0, ErrSession, ErrSession},
		{"no session", func(_ *Approval, c *Call) { c.Session = "" }, egress, 0, ErrSession, ErrSession},
		{"other policies", func(_ *Approval, c *Call) { c.Revision = "r2" }, egress, 0, ErrRevision, ErrRevision},
		{"more is missing", none, wide, 0, ErrCoverage, ErrCoverage},
		{"something else is missing", none, capability.Set(capability.GrantAccess), 0, ErrCoverage, ErrCoverage},
		{"an unknown bit is missing", none, 1 << 15, 0, ErrCoverage, ErrCoverage},
		{"the session of nobody", func(a *Approval, c *Call) { a.Session, c.Session = "", "" }, egress, 0, nil, ErrScope},
		{"a marker", func(a *Approval, _ *Call) { a.Coverage = capability.Set(capability.GrantAdmin) }, capability.Set(capability.GrantAdmin), 0, nil, ErrScope},
		{"an unknown bit", func(a *Approval, _ *Call) { a.Coverage = egress | 1<<15 }, egress, 0, nil, ErrScope},
		{"no scope", func(a *Approval, _ *Call) { a.Scope = 0 }, egress, 0, ErrScope, ErrScope},
		{"a scope of another world", func(a *Approval, _ *Call) { a.Scope = 3 }, egress, 0, ErrScope, ErrScope},
		{"no call", func(_ *Approval, c *Call) { c.Arguments = json.RawMessage(`1`) }, egress, 0, ErrInvalid, ErrInvalid},
	} {
		for scope, want := range map[Scope]error{Once: test.once, ForSession: test.session} {
			a, c := approval(t, scope), escalation("t", `{"a":1}`, 0).Call
			test.change(a, &c)
			if err := a.Covers(&c, test.missing, a.At.Add(test.later)); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s, %v: expected %v, got %v", test.name, scope, want, err)
			}
		}
	}
	if err := (&Approval{}).Covers(&Call{Tool: "t"}, 0, time.Time{}); err == nil {
		t.Error("the zero approval lets something pass")
	}
}

func TestToken(t *testing.T) {
	k := ring(1)
	a := approval(t, Once)
	got, err := k.Read(sign(t, k, a))
	if err != nil || *got != *a {
		t.Fatalf("got %+v, %v", got, err)
	}
	both := ring(2)
	both.Trust(seed(1).Public().(ed25519.PublicKey))
	if _, err := both.Read(sign(t, k, a)); err != nil {
		t.Errorf("a trusted key: %v", err)
	}
	if _, err := (&Keyring{}).Read(sign(t, k, a)); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("nobody is trusted: %v", err)
	}
	if _, err := (&Keyring{}).sign(a); !errors.Is(err, ErrKey) {
		t.Errorf("nobody signs: %v", err)
	}
}

// Every bit of a token counts: what is flipped is refused, and for its reason.
func TestTokenFlipped(t *testing.T) {
	k := ring(1)
	token := sign(t, k, approval(t, Once))
	kinds := map[error]int{}
	for i := range token {
		for bit := range 8 {
			flipped := []byte(token)
			flipped[i] ^= 1 << bit
			_, err := k.Read(string(flipped))
			known := false
			for _, want := range []error{ErrMalformed, ErrUnknownKey, ErrSignature} {
				if errors.Is(err, want) {
					known = true
					kinds[want]++
				}
			}
			if !known {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
	if len(kinds) != 3 {
		t.Errorf("only these were seen: %v", kinds)
	}
	for i := range len(token) + 1 {
		if _, err := k.Read(token[:i] + "\n" + token[i:]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("a line end at %d: %v", i, err)
		}
		if i < len(token) {
			if _, err := k.Read(token[:i]); err == nil {
				t.Fatalf("the first %d bytes count", i)
			}
		}
	}
}

func TestTokenForged(t *testing.T) {
	k := ring(1)
	encode := base64.RawURLEncoding.EncodeToString
	parts := strings.Split(sign(t, k, approval(t, Once)), ".")
	head, _ := base64.RawURLEncoding.DecodeString(parts[0])
	body, _ := base64.RawURLEncoding.DecodeString(parts[1])
	make := func(head, body string) string {
		signed := encode([]byte(head)) + "." + encode([]byte(body))
		return signed + "." + encode(ed25519.Sign(seed(1), []byte(signed)))
	}
	if _, err := k.Read(make(string(head), string(body))); err != nil {
		t.Fatal(err)
	}
	id := KeyID(k.Signer())
	for name, test := range map[string]struct {
		token string
		want  error
	}{
		"nothing":             {"", ErrMalformed},
		"dots":                {"..", ErrMalformed},
		"four parts":          {strings.Join(parts, ".") + ".x", ErrMalformed},
		"too long":            {strings.Repeat("a", maxToken) + ".b.c", ErrMalformed},
		"alg none":            {encode([]byte(`{"alg":"none","kid":"`+id+`","typ":"opa-gate-approval"}`)) + "." + parts[1] + ".", ErrMalformed},
		"alg none, signed":    {make(`{"alg":"none","kid":"`+id+`","typ":"opa-gate-approval"}`, string(body)), ErrMalformed},
		"alg HS256":           {make(`{"alg":"HS256","kid":"`+id+`","typ":"opa-gate-approval"}`, string(body)), ErrMalformed},
		"alg eddsa":           {make(`{"alg":"eddsa","kid":"`+id+`","typ":"opa-gate-approval"}`, string(body)), ErrMalformed},
		"typ JWT":             {make(`{"alg":"EdDSA","kid":"`+id+`","typ":"JWT"}`, string(body)), ErrMalformed},
		"no typ":              {make(`{"alg":"EdDSA","kid":"`+id+`"}`, string(body)), ErrMalformed},
		"a jwk of its own":    {make(`{"alg":"EdDSA","kid":"`+id+`","typ":"opa-gate-approval","jwk":{}}`, string(body)), ErrMalformed},
		"crit":                {make(`{"alg":"EdDSA","kid":"`+id+`","typ":"opa-gate-approval","crit":["x"]}`, string(body)), ErrMalformed},
		"header behind":       {make(string(head)+"{}", string(body)), ErrMalformed},
		"another kid":         {make(`{"alg":"EdDSA","kid":"`+KeyID(seed(2).Public().(ed25519.PublicKey))+`","typ":"opa-gate-approval"}`, string(body)), ErrUnknownKey},
		"no kid":              {make(`{"alg":"EdDSA","typ":"opa-gate-approval"}`, string(body)), ErrUnknownKey},
		"no signature":        {parts[0] + "." + parts[1] + ".", ErrSignature},
		"half a signature":    {parts[0] + "." + parts[1] + "." + parts[2][:43], ErrSignature},
		"another key":         {sign(t, ring(2), approval(t, Once)), ErrUnknownKey},
		"another key's bytes": {parts[0] + "." + parts[1] + "." + strings.Split(sign(t, ring(2), approval(t, Once)), ".")[2], ErrSignature},
		"unknown member":      {make(string(head), `{"x":1,`+string(body[1:])), ErrMalformed},
		"something behind":    {make(string(head), string(body)+"1"), ErrMalformed},
		"no JSON":             {make(string(head), "x"), ErrMalformed},
		"no id":               {make(string(head), strings.Replace(string(body), `"id"`, `""`, 1)), ErrMalformed},
		"no tool":             {make(string(head), strings.Replace(string(body), `"tool":"t"`, `"tool":""`, 1)), ErrMalformed},
		"no reviewer":         {make(string(head), strings.Replace(string(body), `"ann"`, `""`, 1)), ErrMalformed},
		"a scope unheard of":  {make(string(head), strings.Replace(string(body), `"once"`, `"ever"`, 1)), ErrMalformed},
	} {
		_, err := k.Read(test.token)
		if name == "half a signature" && errors.Is(err, ErrMalformed) {
			err = ErrSignature // its last digit may have bits too many
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s: expected %v, got %v", name, test.want, err)
		}
	}
}

// What is replayed at a ledger is refused with its reason, and the call waits.
func TestReplay(t *testing.T) {
	wide := egress | capability.Set(capability.MutateExternal)
	for name, test := range map[string]struct {
		change func(e *Escalation)
		later  time.Duration
		want   error
	}{
		"another tool":     {func(e *Escalation) { e.Call.Tool = "u" }, 0, ErrTool},
		"changed argument": {func(e *Escalation) { e.Call.Arguments = json.RawMessage(`{"a":2}`) }, 0, ErrArguments},
		"other session":    {func(e *Escalation) { e.Call.Session = "s2" }, 0, ErrSession},
		"other revision":   {func(e *Escalation) { e.Call.Revision = "r2" }, 0, ErrRevision},
		"after expiry":     {func(*Escalation) {}, time.Hour, ErrExpired},
		"more missing":     {func(e *Escalation) { e.Outcome.Missing = wide }, 0, ErrCoverage},
		"flipped bit":      {func(e *Escalation) { b := []byte(e.Token); b[len(b)-20] ^= 1; e.Token = string(b) }, 0, ErrSignature},
		"another key":      {func(e *Escalation) { e.Token = sign(t, ring(2), approval(t, Once)) }, 0, ErrUnknownKey},
	} {
		everywhere(t, func(t *testing.T, k kind) {
			t.Logf("%s, on %s", name, k.name)
			c := newClock()
			w := &world{t, open(t, k.place(t), &Options{Keys: ring(1), Now: c.now}), c}
			e := escalation("t", `{"a":1}`, egress)
			e.Token = sign(t, ring(1), approval(t, Once))
			test.change(e)
			c.add(test.later)
			w.waits(e, test.want)
			if test.later == 0 { // it was not used up by trying
				e := escalation("t", `{"a":1}`, egress)
				e.Token = sign(t, ring(1), approval(t, Once))
				w.passes(e, capability.Allow)
				w.waits(e, ErrUsed)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	k := ring(1)
	token := sign(f, k, approval(f, Once))
	f.Add(token)
	f.Add(token + "=")
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := k.Read(text); err == nil && text != token {
			t.Errorf("nobody signed %q, which says %+v", text, a)
		}
	})
}

func TestScopeAndStateNames(t *testing.T) {
	for i := range 256 {
		s := Scope(i)
		text, err := s.MarshalText()
		var back Scope
		if ok := i == int(Once) || i == int(ForSession); (err == nil) != ok || ok && (back.UnmarshalText(text) != nil || back != s) {
			t.Errorf("scope %d: %q, %v", i, text, err)
		}
		st := State(i)
		text, err = st.MarshalText()
		var again State
		if ok := i >= 1 && i <= len(States()); (err == nil) != ok || ok && (again.UnmarshalText(text) != nil || again != st) {
			t.Errorf("state %d: %q, %v", i, text, err)
		}
	}
	for _, m := range []string{"", "1", "x:", "-1:" + strings.Repeat("0", 64), "1:" + strings.Repeat("0", 62), "1:" + strings.Repeat("g", 64)} {
		if _, err := ParseMark(m); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", m, err)
		}
	}
	if m, err := ParseMark(fmt.Sprintf("7:%064x", 255)); err != nil || m.Seq != 7 || m.Hash[31] != 255 || m.String() != fmt.Sprintf("7:%064x", 255) {
		t.Errorf("%v, %v", m, err)
	}
}

package capability

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendJSON appends the decision document (specification, section 7) to dst
// and returns the extended slice. It allocates nothing if dst has room.
// Characters that only HTML treats specially are left as they are.
//
// On an error it returns dst as it was given. The error is a
// [*json.UnsupportedValueError] if the outcome's kind is not valid, and a
// [*json.MarshalerError] if the arguments of a Modify are not JSON.
func (o Outcome) AppendJSON(dst []byte) ([]byte, error) {
	if !o.Kind.Valid() {
		return dst, &json.UnsupportedValueError{Str: "an outcome of " + o.Kind.String()}
	}
	given := dst
	dst = append(dst, `{"outcome":"`...)
	dst = append(dst, kindNames[o.Kind]...)
	dst = append(dst, `","reason":`...)
	dst = appendText(dst, o.Reason)
	dst = append(dst, `,"missing":`...)
	dst = appendNames(dst, o.Missing)
	dst = append(dst, `,"missing_mask":`...)
	dst = strconv.AppendUint(dst, uint64(o.Missing), 10)
	dst = append(dst, `,"required":`...)
	dst = appendNames(dst, o.Required)
	dst = append(dst, `,"required_mask":`...)
	dst = strconv.AppendUint(dst, uint64(o.Required), 10)
	dst = append(dst, `,"granted":`...)
	dst = appendNames(dst, o.Granted)
	dst = append(dst, `,"granted_mask":`...)
	dst = strconv.AppendUint(dst, uint64(o.Granted), 10)
	switch {
	case o.Kind == Modify && len(o.Arguments) > 0:
		buf := bytes.NewBuffer(append(dst, `,"arguments":`...))
		if err := json.Compact(buf, o.Arguments); err != nil {
			return given, &json.MarshalerError{Type: reflect.TypeFor[json.RawMessage](), Err: err}
		}
		dst = buf.Bytes()
	case o.Kind == Inject:
		dst = append(dst, `,"note":`...)
		dst = appendText(dst, o.Note)
	}
	if len(o.Warnings) > 0 {
		dst = append(dst, `,"warnings":`...)
		for i, warning := range o.Warnings {
			dst = append(dst, "[,"[min(i, 1)])
			dst = appendText(dst, warning)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}'), nil
}

// MarshalJSON writes the decision document as [Outcome.AppendJSON] does, with
// the same errors.
func (o Outcome) MarshalJSON() ([]byte, error) {
	const fixed = 400 // the members' names, and every grantable capability three times
	room := fixed + len(o.Reason) + len(o.Arguments) + len(o.Note)
	for _, warning := range o.Warnings {
		room += len(warning) + len(`"",`)
	}
	text, err := o.AppendJSON(make([]byte, 0, room))
	if err != nil {
		return nil, err
	}
	return text, nil
}

// appendNames appends the display names of s. No name of the taxonomy needs an
// escape; a test holds every mask against encoding/json.
func appendNames(dst []byte, s Set) []byte {
	dst = append(dst, '[')
	first := true
	for i := range taxonomy {
		d := &taxonomy[i]
		if !s.Has(d.Capability) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, '"')
		dst = append(dst, d.Name...)
		dst = append(dst, '"')
	}
	return append(dst, ']')
}

// appendText appends text as a JSON string, in the spelling of encoding/json:
// documents that other programs have kept must compare equal to new ones.
func appendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for {
		n := plainPrefix(text)
		dst = append(dst, text[:n]...)
		if text = text[n:]; text == "" {
			return append(dst, '"')
		}
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1: // not UTF-8
			dst = append(dst, `\ufffd`...)
		case r == '\u2028' || r == '\u2029': // line breaks to JavaScript, though not to JSON
			dst = append(dst, `\u202`...)
			dst = append(dst, byte('0'+r&0xf))
		case r >= ' ' && r != '"' && r != '\\':
			dst = append(dst, text[:size]...)
		default:
			dst = appendEscape(dst, text[0])
		}
		text = text[size:]
	}
}

// plainPrefix counts the leading bytes that stand for themselves in a JSON
// string and are characters of their own.
func plainPrefix(text string) int {
	for i := range len(text) {
		if b := text[i]; b < ' ' || b >= utf8.RuneSelf || b == '"' || b == '\\' {
			return i
		}
	}
	return len(text)
}

// appendEscape appends the shortest escape that JSON has for b.
func appendEscape(dst []byte, b byte) []byte {
	const shortened, letters = "\"\\\b\f\n\r\t", `"\bfnrt`
	if i := strings.IndexByte(shortened, b); i >= 0 {
		return append(dst, '\\', letters[i])
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', digits[b>>4], digits[b&0xf])
}

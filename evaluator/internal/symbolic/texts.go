package symbolic

import (
	"crypto/rand"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A Hole is a text of the document that a mark stands for.
type Hole uint8

// The holes. Literal is none: a text that is always the same.
const (
	Literal   Hole = iota
	Tool           // the tool's name; never empty
	Veto           // the veto's text
	Note           // the note to the model
	Arguments      // a rewrite's arguments, one object
)

// markers are what follows the secret part of a mark.
const markers = "-TVNA"

// Texts are the marks of one policy. They contain a random part that no policy,
// data or document can hold by chance or on purpose, so that a mark is known
// wherever it turns up, in the middle of a longer text too.
type Texts struct {
	prefix string
	key    *ast.Term // the member by which the arguments are known
}

// NewTexts makes marks that were never used before.
func NewTexts() *Texts {
	t := &Texts{prefix: "\u27e6" + rand.Text() + "\u27e7"}
	t.key = ast.StringTerm(t.mark(Arguments))
	return t
}

func (t *Texts) mark(h Hole) string { return t.prefix + markers[h:h+1] }

// Text returns what stands for the text of a hole in a document. For the
// arguments it is the JSON text of an object.
func (t *Texts) Text(h Hole) string {
	if h == Arguments {
		return `{"` + t.mark(h) + `":null}`
	}
	return t.mark(h)
}

// A Piece is a part of a text: literal, or the text that a hole stands for.
type Piece struct {
	Hole Hole
	Text string // of a literal
}

// Pieces takes a text apart at its marks. A text without any is one literal,
// the empty text none.
func (t *Texts) Pieces(text string) []Piece {
	var pieces []Piece
	for text != "" {
		head, tail, found := strings.Cut(text, t.prefix)
		if head != "" {
			pieces = append(pieces, Piece{Text: head})
		}
		if !found {
			break
		}
		pieces = append(pieces, Piece{Hole: Hole(strings.IndexByte(markers, tail[0]))})
		text = tail[1:]
	}
	return pieces
}

// In reports whether v is a mark or holds one anywhere.
func (t *Texts) In(v ast.Value) bool { return t.holes(v) != 0 }

// Holds reports whether the mark of a hole is in text.
func (t *Texts) Holds(h Hole, text string) bool { return strings.Contains(text, t.mark(h)) }

// Opaque reports whether v stands for a rewrite's arguments as a whole.
func (t *Texts) Opaque(v ast.Value) bool {
	object, ok := v.(ast.Object)
	return ok && object.Get(t.key) != nil
}

// holes is a set of them, a bit for each.
type holes uint8

// only reports whether h is the one hole in s.
func (s holes) only(h Hole) bool { return s == 1<<h }

// holes returns the holes in v.
func (t *Texts) holes(v ast.Value) (found holes) {
	switch v := v.(type) {
	case ast.String:
		for text := string(v); ; {
			_, tail, ok := strings.Cut(text, t.prefix)
			if !ok {
				return found
			}
			found |= 1 << max(strings.IndexByte(markers, tail[0]), 0)
			text = tail[1:]
		}
	case *ast.Array:
		for i := range v.Len() {
			found |= t.holes(v.Elem(i).Value)
		}
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) { found |= t.holes(key.Value) | t.holes(value.Value) })
	case ast.Set:
		v.Foreach(func(member *ast.Term) { found |= t.holes(member.Value) })
	}
	return found
}

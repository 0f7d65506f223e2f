package analysis

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/opa-gate/opa-gate/wire"
)

// Where pull requests are discussed, a comment may have 65,536 characters.
const (
	markdownRoom     = 60_000 // bytes until the last row
	incompleteRoom   = 12_000 // bytes until the last expression
	markdownDocument = 6_000  // bytes of one example: a long one takes no room from the others
)

// WriteMarkdown writes the difference for a pull request: the sentence, a table
// for each direction, and the examples folded away below it. It stays below the
// length that a comment can have, and says what it left out for that. No text
// of a policy or a document becomes markup in it.
func (d *Difference) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	first, rest, _ := strings.Cut(d.headline(), ": ")
	b.WriteString("### Policy difference\n\n**" + first + "**")
	if rest != "" {
		b.WriteString(": " + rest)
	}
	fmt.Fprintf(&b, "\n\nBefore: %s, after: %s; %s and %s compared.\n", markdownCode(d.Old), markdownCode(d.New),
		number(d.Calls, "call", "calls"), number(d.Skills, "skill", "skills"))
	d.markdownIncomplete(&b)
	row := 0
	for _, g := range d.groups() {
		if len(g.Changes) > 0 {
			row = g.markdown(&b, row)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown writes a direction. Its rows are numbered from row on, so that an
// example is found beside its row; the next free number is returned.
func (g *changeGroup) markdown(b *strings.Builder, row int) int {
	fmt.Fprintf(b, "\n#### %s\n\n", strings.ToUpper(g.Title[:1])+g.Title[1:])
	room := markdownRoom - b.Len()
	var table, examples strings.Builder
	shown := 0
	for _, c := range g.Changes {
		line := fmt.Sprintf("| %d | %s | %s | %s |\n", row+1, markdownText(shorten(c.subject())), markdownText(shorten(c.turn())), thousands(c.Inputs))
		example := c.markdownExample(row + 1)
		if table.Len()+examples.Len()+len(line)+len(example) > room {
			break
		}
		table.WriteString(line)
		examples.WriteString(example)
		shown++
		row++
	}
	if shown > 0 {
		b.WriteString("| | calls | before → after | inputs |\n| ---: | --- | --- | ---: |\n" + table.String())
		b.WriteString("\n<details><summary>" + number(shown, "example", "examples") + "</summary>\n" + examples.String() + "\n</details>\n")
	}
	if left := len(g.Changes) - shown; left > 0 {
		if shown > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "%s left out here for the length; the other formats have them all.\n", number(left, "class is", "classes are"))
	}
	return row
}

// markdownExample writes one document to paste, and what else is not the same
// in its two answers.
func (c *Change) markdownExample(row int) string {
	var b strings.Builder
	document := documentLine(c.Example)
	fmt.Fprintf(&b, "\n%d\\. %s: %s\n\n", row, markdownText(shorten(c.subject())), markdownText(shorten(c.turn())))
	if len(document) > markdownDocument {
		b.WriteString("Its document is left out here for the length.\n")
	} else {
		fence := strings.Repeat("`", max(3, longestRun(document, '`')+1))
		fmt.Fprintf(&b, "%sjson\n%s\n%s\n", fence, document, fence)
	}
	for i, t := range c.contrasts() {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "- %s: %s → %s\n", markdownText(t.Member), markdownCode(t.Before), markdownCode(t.After))
	}
	return b.String()
}

func (d *Difference) markdownIncomplete(b *strings.Builder) {
	if len(d.Incomplete) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n\n<details><summary>%s not covered for every text</summary>\n\n", d.reservation(),
		number(len(d.Incomplete), "expression is", "expressions are"))
	for i := range d.Incomplete {
		if b.Len() > incompleteRoom {
			fmt.Fprintf(b, "- and %d more\n", len(d.Incomplete)-i)
			break
		}
		blocker := &d.Incomplete[i]
		text := markdownText(shorten(blocker.Why)) + " (" + number(blocker.Cells, "kind of call", "kinds of call") + ")"
		if blocker.Expression != "" {
			text = markdownCode(blocker.Expression) + " " + text
		}
		if place := blockerPlace(blocker); place != "" {
			text = markdownCode(place) + ": " + text
		}
		b.WriteString("- " + markdownText(blocker.Of) + ": " + text + "\n")
	}
	b.WriteString("\n</details>\n")
}

// plainMarkdown is what no Markdown makes anything of. An underscore within a
// word is only that.
var plainMarkdown = regexp.MustCompile(`^(?:[a-zA-Z0-9 ,→-]|[a-z]_[a-z])*$`)

// markdownText writes words as they are. Anything with a character that could
// be markup, or name a person or an address to a forge, becomes code.
func markdownText(text string) string {
	if plainMarkdown.MatchString(text) {
		return text
	}
	return markdownCode(text)
}

// markdownCode writes text as code on one line, in a table too. It takes the
// HTML element: within it forges make no links and notify nobody, and what
// is written as a reference is text in every Markdown, whereas backticks
// cannot be escaped within backticks, nor bars within tables everywhere.
func markdownCode(text string) string {
	var b strings.Builder
	b.WriteString("<code>")
	for _, r := range wire.Printable(shorten(text)) {
		switch {
		case r < 0x80 && !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == ' ' || r == '-' || r == ',' || r == '"'):
			fmt.Fprintf(&b, "&#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + "</code>"
}

// longestRun returns how often r occurs in a row at most.
func longestRun(text string, r rune) int {
	longest, run := 0, 0
	for _, c := range text {
		if run++; c != r {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

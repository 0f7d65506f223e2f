package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/wire"
)

func newClassify() *cobra.Command {
	origin := choice{value: capability.Unknown.String()}
	for _, o := range capability.Origins() {
		origin.names = append(origin.names, o.String())
	}
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "classify [FILE|-]",
		Short: "Tell what the tools of an MCP server require, and what they would be allowed",
		Long: `Classify reads the list of tools of an MCP server and tells for each tool what it
requires, and how a call of it is decided under the default grant: in a clean
conversation, and in one that holds content from outside.

The input is the result of a tools/list request, the JSON-RPC response with it,
or the array alone; several pages may follow one another. What a tool does not
say of itself is assumed the careful way, and shown. Where the tools come from
is yours to say, by --origin: a server cannot vouch for itself.`,
		Example: `  opa-gate classify --origin registered-connector tools.json
  opa-gate classify --format json page1.json
  cat page1.json page2.json | opa-gate classify --origin first-party`,
		Args: oneInput,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name, err := open(cmd, args)
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }() // nothing was written to it
			tools, more, err := readTools(in, name)
			if err != nil {
				return err
			}
			o, _ := capability.ParseOrigin(origin.value)
			c, err := classify(tools, o)
			if err != nil {
				return err
			}
			c.Summary.Complete = !more
			if err := c.write(cmd.OutOrStdout(), format.value == "json"); err != nil {
				return err
			}
			if more {
				return fmt.Errorf("%s: the list is a part only: its last page has a nextCursor; fetch the rest and pass all pages", name)
			}
			return nil
		},
	}
	origin.add(cmd, "origin", "where the tools come from")
	format.add(cmd, "format", "how the list is written")
	return cmd
}

// A classification is what the gate makes of a list of tools.
type classification struct {
	Origin  string    `json:"origin"`
	Tools   []classed `json:"tools"`
	Summary summary   `json:"summary"`
}

type classed struct {
	Name          string             `json:"name"`
	ReadOnly      bool               `json:"read_only"`
	Destructive   bool               `json:"destructive"`
	OpenWorld     bool               `json:"open_world"`
	Assumed       []string           `json:"assumed"` // the annotations left out; their values above are MCP's defaults
	Required      []string           `json:"required"`
	RequiredMask  uint16             `json:"required_mask"`
	Clean         capability.Outcome `json:"clean"`
	Tainted       capability.Outcome `json:"tainted"`
	Contradiction bool               `json:"contradiction"` // says both read-only and destructive
	Duplicate     bool               `json:"duplicate"`     // another tool has the same name
}

type summary struct {
	Tools          int            `json:"tools"`
	Clean          map[string]int `json:"clean"`
	Tainted        map[string]int `json:"tainted"`
	Assumed        int            `json:"assumed"` // tools that leave an annotation out
	Contradictions int            `json:"contradictions"`
	Duplicates     int            `json:"duplicates"`
	Complete       bool           `json:"complete"` // the server has announced no further page
}

func classify(tools []tool, origin capability.Origin) (*classification, error) {
	c := &classification{Origin: origin.String(), Tools: make([]classed, 0, len(tools))}
	c.Summary = summary{Tools: len(tools), Clean: map[string]int{}, Tainted: map[string]int{}}
	seen := make(map[string]int, len(tools))
	for _, t := range tools {
		seen[t.name]++
	}
	for _, t := range tools {
		p := capability.Profile{Origin: origin, ReadOnly: t.readOnly, Destructive: t.destructive, OpenWorld: t.openWorld}
		out := classed{
			Name: t.name, ReadOnly: p.IsReadOnly(), Destructive: p.IsDestructive(), OpenWorld: p.IsOpenWorld(),
			Assumed: []string{}, Required: p.Required().DisplayNames(), RequiredMask: p.Required().Mask(),
			Contradiction: p.Contradicts(), Duplicate: seen[t.name] > 1,
		}
		for i, hint := range []capability.Hint{t.readOnly, t.destructive, t.openWorld} {
			if hint == capability.Unset {
				out.Assumed = append(out.Assumed, [...]string{"read_only", "destructive", "open_world"}[i])
			}
		}
		call := capability.Call{Tool: t.name, Profile: p, Grant: capability.DefaultGrant(), LeftOut: capability.GrantMember, Taint: capability.Clean}
		if err := call.Validate(); err != nil {
			return nil, err
		}
		out.Clean = call.Decide("")
		call.Taint = capability.Tainted
		out.Tainted = call.Decide("")
		c.Summary.count(&out)
		c.Tools = append(c.Tools, out)
	}
	return c, nil
}

func (s *summary) count(t *classed) {
	s.Clean[t.Clean.Kind.String()]++
	s.Tainted[t.Tainted.Kind.String()]++
	if len(t.Assumed) > 0 {
		s.Assumed++
	}
	if t.Contradiction {
		s.Contradictions++
	}
	if t.Duplicate {
		s.Duplicates++
	}
}

func (c *classification) write(w io.Writer, asJSON bool) error {
	out := bufio.NewWriterSize(w, bufferSize)
	if asJSON {
		text, err := encode(c)
		if err != nil {
			return err
		}
		_, _ = out.Write(text)
	} else {
		c.print(&printer{Writer: out, colour: wantsColour(w)})
	}
	return out.Flush()
}

// maxName is the widest a name may make its column; a longer one sticks out.
const maxName = 48

func (c *classification) print(p *printer) {
	rows := make([][5]string, len(c.Tools))
	width := [4]int{len("TOOL"), len("REQUIRES"), len("CLEAN"), len("TAINTED")}
	for i := range c.Tools {
		t := &c.Tools[i]
		rows[i] = [5]string{wire.Printable(t.Name), requires(t), t.Clean.Kind.String(), t.Tainted.Kind.String(), assumed(t)}
		for j := range width {
			width[j] = max(width[j], utf8.RuneCountInString(rows[i][j]))
		}
	}
	width[0] = min(width[0], maxName)
	if len(rows) > 0 {
		for i, title := range [...]string{"TOOL", "REQUIRES", "CLEAN", "TAINTED"} {
			p.paint(faint, title, width[i]+2)
		}
		p.paint(faint, "ASSUMED", 0)
		_ = p.WriteByte('\n')
	}
	for i, row := range rows {
		pad(p, row[0], width[0]+2)
		pad(p, row[1], width[1]+2)
		p.paint(kindColour(c.Tools[i].Clean.Kind), row[2], width[2]+2)
		p.paint(kindColour(c.Tools[i].Tainted.Kind), row[3], width[3]+2)
		_, _ = p.WriteString(row[4] + "\n")
	}
	if len(rows) > 0 {
		_ = p.WriteByte('\n')
	}
	c.printSummary(p)
}

func (c *classification) printSummary(p *printer) {
	s := &c.Summary
	parts := []string{counted(s.Tools, "tool", "tools") + " from " + c.Origin}
	if s.Tools > 0 {
		parts = append(parts, "clean: "+outcomes(s.Clean), "tainted: "+outcomes(s.Tainted),
			strconv.Itoa(s.Assumed)+" with annotations left out")
	}
	_, _ = p.WriteString(strings.Join(parts, "; ") + "\n")
	told := map[string]bool{}
	var repeated []string
	for i := range c.Tools {
		t := &c.Tools[i]
		if t.Contradiction {
			p.note(t.Name + " says that it is read-only and destructive; it is taken as destructive")
		}
		if t.Duplicate && !told[t.Name] {
			told[t.Name] = true
			repeated = append(repeated, t.Name)
		}
	}
	if len(repeated) > 0 {
		p.note("listed more than once: " + strings.Join(repeated, ", "))
	}
}

// note writes a line that a person should act on.
func (p *printer) note(text string) {
	p.paint(yellow, "note:", 6)
	_, _ = p.WriteString(wire.Printable(text) + "\n")
}

func pad(p *printer, text string, width int) {
	_, _ = p.WriteString(text + strings.Repeat(" ", max(2, width-utf8.RuneCountInString(text))))
}

func requires(t *classed) string {
	names := strings.Join(t.Required, " + ")
	if t.RequiredMask == capability.All.Mask() {
		names = "everything grantable"
	}
	return names + " (" + strconv.Itoa(int(t.RequiredMask)) + ")"
}

// assumed words the values of the annotations that were left out.
func assumed(t *classed) string {
	words := make([]string, 0, 3)
	for _, name := range t.Assumed {
		switch {
		case name == "read_only":
			words = append(words, "writes")
		case name == "destructive" && t.Destructive:
			words = append(words, "destructive")
		case name == "destructive":
			words = append(words, "not destructive")
		default:
			words = append(words, "open world")
		}
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

// outcomes lists how often each outcome was given, in the order of the kinds.
func outcomes(counts map[string]int) string {
	var parts []string
	for k := capability.Allow; k.Valid(); k++ {
		if n := counts[k.String()]; n > 0 {
			parts = append(parts, strconv.Itoa(n)+" "+k.String())
		}
	}
	return strings.Join(parts, ", ")
}

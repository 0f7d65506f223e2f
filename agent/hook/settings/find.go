package settings

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

// Quote writes a word for a shell.
func Quote(word string) string {
	if word != "" && strings.IndexFunc(word, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./=:,@+", r))
	}) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Words is the inverse of words written by [Quote], or by a person with quotes of
// the other kind, with blanks between them, up to the first one that means something
// to a shell.
func Words(command string) []string {
	var words []string
	var word strings.Builder
	inWord, quote := false, byte(0)
	for i := 0; i < len(command); i++ {
		switch c := command[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'':
			word.WriteByte(c)
		case c == '\\' && i+1 < len(command):
			i++
			if quote == '"' && !strings.ContainsRune("\"\\$`", rune(command[i])) { // it stands for itself
				word.WriteByte(c)
			}
			word.WriteByte(command[i])
			inWord = true
		case c == '$', c == '`':
			return words
		case quote == '"':
			word.WriteByte(c)
		case c == '\'', c == '"':
			quote, inWord = c, true
		case c == ' ':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case strings.IndexByte("|&;<>()\n", c) >= 0:
			return words
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}

// Ours reports whether a command of the settings is this program's hook, and
// returns its arguments. A person may have hooks of their own that run other
// commands of this program.
func Ours(command string) (program string, args []string, ok bool) {
	words := Words(command)
	switch {
	case len(words) > 0 && filepath.Base(words[0]) == "opa-gate-hook":
		return words[0], words[1:], true
	case len(words) > 1 && filepath.Base(words[0]) == "opa-gate" && words[1] == "hook" &&
		(len(words) == 2 || strings.HasPrefix(words[2], "-")):
		return words[0], words[2:], true
	}
	return "", nil, false
}

// A Found is a hook of this program in settings.
type Found struct {
	Event     string
	Matcher   string // "" is every tool; one that is no text is told as it stands there
	Command   string
	OnFailure string
	Timeout   float64
}

// Find returns the hooks of this program, in the order of the events' names.
func Find(text []byte) ([]Found, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	var out []Found
	for _, e := range root.entries() {
		out = append(out, e.found)
	}
	slices.SortStableFunc(out, func(a, b Found) int { return strings.Compare(a.Event, b.Event) })
	return out, nil
}

// An entry is a hook of this program where it stands.
type entry struct {
	found        Found
	event, group int   // among the hooks, and of that event
	list         *node // that it is in
	at           int
}

// entries are the hooks of this program. Whatever stands beside them, and has a
// form that this program does not know, hides none of them.
func (n *node) entries() []entry {
	hooks := n.member("hooks")
	if hooks == nil || hooks.kind != '{' {
		return nil
	}
	var out []entry
	for i, event := range hooks.members {
		for j, g := range event.value.members {
			list := g.value.member("hooks")
			if list == nil || list.kind != '[' {
				continue
			}
			for k, h := range list.members {
				f := Found{Event: event.name}
				h.value.read("command", &f.Command)
				if _, _, ours := Ours(f.Command); !ours {
					continue
				}
				h.value.read("onFailure", &f.OnFailure)
				h.value.read("timeout", &f.Timeout)
				if !g.value.read("matcher", &f.Matcher) {
					f.Matcher = string(g.value.member("matcher").raw)
				}
				out = append(out, entry{found: f, event: i, group: j, list: list, at: k})
			}
		}
	}
	return out
}

// read puts the value of a member into what is given, and reports whether it could:
// one that is not there, or null, leaves it as it is.
func (n *node) read(name string, into any) bool {
	m := n.member(name)
	return m == nil || json.Unmarshal(m.raw, into) == nil
}

package approvals

import (
	"regexp"
	"slices"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
)

// The page has words for every capability there is and for no other, and marks as
// grave those that nobody is granted. The commands' words are held against the same
// list, so that neither can lack what the other has.
func TestWordsOfThePage(t *testing.T) {
	text, err := pageFiles.ReadFile("page/words.js")
	if err != nil {
		t.Fatal(err)
	}
	block := func(pattern string) []byte {
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("words.js has nothing like %s", pattern)
		}
		return m[1]
	}
	names := func(block []byte, pattern string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(block, -1) {
			names = append(names, string(m[1]))
		}
		slices.Sort(names)
		return names
	}
	var all, grave []string
	for _, d := range capability.Taxonomy() {
		all = append(all, d.Name)
		if !d.Grantable {
			grave = append(grave, d.Name)
		}
	}
	slices.Sort(all)
	slices.Sort(grave)
	if got := names(block(`(?s)const could = \{(.*?)\n\};`), `(?m)^\s*'([^']+)': '.+',$`); !slices.Equal(got, all) {
		t.Errorf("the page has words for %q, want %q", got, all)
	}
	if got := names(block(`const grave = .*\[(.*?)\]`), `'([^']+)'`); !slices.Equal(got, grave) {
		t.Errorf("grave on the page are %q, want %q", got, grave)
	}
}

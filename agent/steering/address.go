package steering

import (
	"strings"
	"unicode"
)

// looksLikeAddress reports whether a text can be the name of a place and is hardly
// a word: it has no blank, and a digit or, within it, a mark that addresses have.
func looksLikeAddress(text string) bool {
	if strings.IndexFunc(text, unicode.IsSpace) >= 0 {
		return false
	}
	if strings.IndexFunc(text, unicode.IsDigit) >= 0 {
		return true
	}
	inner := strings.TrimFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
	return strings.ContainsAny(inner, "@./:_")
}

// Digits in one number from which on it may be that of a telephone or an account.
const accountDigits = 7

// The length from which on a word of letters and digits may be an account or a key.
const accountWord = 10

// address reports whether a text may hold an address that the person did not type.
// It rather finds too many: each word with a mark of addresses is one, and so is a
// number as long as that of an account, blanks in it or not.
func (t *Typed) address(text string) bool {
	if !visible(text) || strings.ContainsAny(text, `\。．｡`) {
		return true
	}
	digits := 0 // since the last word that is no part of a number
	for word := range strings.FieldsSeq(text) {
		word = strings.TrimRight(strings.TrimLeft(word, opening), closing)
		if word == "" {
			continue
		}
		if isTime(word) || t.Address(word) {
			digits = 0
			continue
		}
		if isAddress(word) {
			return true
		}
		n, other := 0, false
		for _, r := range word {
			switch {
			case unicode.IsDigit(r):
				n++
			case !strings.ContainsRune("+-()./", r):
				other = true
			}
		}
		if other && n == 0 {
			digits = 0
			continue
		}
		if digits += n; digits >= accountDigits {
			return true
		}
	}
	return false
}

// isAddress reports whether a word is an address by its look: it has an @, or a dot,
// slash or colon between letters or between a letter and a digit; or it is long, of
// letters and digits.
func isAddress(word string) bool {
	if strings.ContainsRune(word, '@') || strings.Contains(word, "//") || strings.Contains(word, "::") {
		return true
	}
	runes := []rune(word)
	letters, digits := 0, 0
	for i, r := range runes {
		switch {
		case unicode.IsLetter(r):
			letters++
		case unicode.IsDigit(r):
			digits++
		}
		if i == 0 || i == len(runes)-1 || !strings.ContainsRune(".:/", r) {
			continue
		}
		before, after := runes[i-1], runes[i+1]
		if named(before) && named(after) && (unicode.IsLetter(before) || unicode.IsLetter(after)) {
			return true
		}
		if r == '.' && strings.Count(word, ".") >= 3 { // numbers with dots, as networks have them
			return true
		}
	}
	return letters > 0 && digits > 0 && letters+digits >= accountWord || digits >= accountDigits
}

func named(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_' || r == '%'
}

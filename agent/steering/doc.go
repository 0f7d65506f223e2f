// Package steering tells what is known of one call about who wrote it: the person,
// or a model that may have read outside content.
//
//	var typed steering.Typed
//	typed.Add(prompt) // each one, as the person typed it
//	facts := steering.Look(&tool, arguments, &typed)
//
// The facts have a closed set of values and go to the policies, which decide
// ([capability.Steering]). Nothing here decides anything.
//
// # What counts as typed
//
// An argument is typed if its whole text stands in one prompt, byte for byte, as a
// whole: before it is the beginning or a blank, after it a blank or the end, with
// nothing but quotes and brackets, and after it marks that end a sentence, between.
// So neither evil.com nor b@evil.com is typed in a prompt that has b@evil.com.example,
// https://a.example/x is not in https://a.example/x/y, and bob is not in @bob.
//
// Nothing is folded: not the case, not Unicode's other spellings of a character, not
// blanks. A text of which a reader sees less than there is (control and format
// characters) is never typed. Short texts are not either, since a prompt has them by
// chance: see [MinText] and [MinAim]. A number is typed if a prompt has one of the
// same value, written out in three characters or more.
//
// An aim has to look like an address besides: without blanks, and with a digit or a
// mark that addresses have in the middle. Else every word of a prompt would be the
// name of a channel or a user, and somebody could own that name.
//
// # Caveats
//
// What a person pastes is what the person typed, wherever it came from. An address
// that is described rather than written, such as "example dot com", is not seen to
// be one. Which arguments are aims is the operator's word: one that is not named is
// payload, where an address that nobody typed still shows.
package steering

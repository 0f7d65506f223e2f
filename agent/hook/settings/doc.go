// Package settings puts a hook into the settings file of a coding agent and takes
// it out again, by editing the text in place: everything else in the file stays as it
// is, byte for byte.
//
// Most callers need three functions: [Install] and [Remove] make a new text of an
// old one, and [File.Write] puts it in the file's place in one step.
package settings

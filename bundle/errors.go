package bundle

import (
	"errors"
	"fmt"
)

// Errors of this package, to be told apart with errors.Is.
var (
	// ErrOptions: what was asked for does not exist or does not go together.
	ErrOptions = errors.New("the options cannot be used")
	// ErrKey: the key cannot be used.
	ErrKey = errors.New("the key cannot be used")
	// ErrNotBundle: it is something else than a gzipped tarball with policies.
	ErrNotBundle = errors.New("it is not a bundle")

	// ErrNotVerified: the bundle is not what was signed. It is the sum of the errors
	// below.
	ErrNotVerified = errors.New("the bundle is not verified")
	// ErrUnsigned: there is no signature.
	ErrUnsigned = notVerified("the bundle is not signed")
	// ErrSignature: the signature is not one that could be verified.
	ErrSignature = notVerified("the signature cannot be used")
	// ErrAlgorithm: the signature is by another algorithm than was asked for.
	ErrAlgorithm = notVerified("the signature is by the wrong algorithm")
	// ErrKeyID: the signature names another key than was asked for.
	ErrKeyID = notVerified("the signature names another key")
	// ErrWrongKey: the key did not sign this list of files.
	ErrWrongKey = notVerified("the signature is not by this key")
	// ErrScope: the signature is for another scope than was asked for.
	ErrScope = notVerified("the signature is for another scope")
	// ErrFileAdded: there is a file that was not signed.
	ErrFileAdded = notVerified("a file was added after the bundle was signed")
	// ErrFileMissing: a file that was signed is not there.
	ErrFileMissing = notVerified("a file was taken out after the bundle was signed")
	// ErrFileChanged: a file is not as it was signed.
	ErrFileChanged = notVerified("a file was changed after the bundle was signed")
	// ErrDamaged: it is gzipped, but cut off, changed, or with something in it that no
	// bundle has.
	ErrDamaged = notVerified("the bundle is damaged")
	// ErrTooLarge: it is larger, or unpacks to more, than a bundle may.
	ErrTooLarge = notVerified("it is too large")

	// ErrRegistry: the registry could not be asked, or refused.
	ErrRegistry = errors.New("the registry did not do it")
)

// notVerified is an error that matches ErrNotVerified too.
type notVerified string

// Error implements error.
func (e notVerified) Error() string { return string(e) }

// Unwrap returns ErrNotVerified.
func (notVerified) Unwrap() error { return ErrNotVerified }

// A MismatchError says what a signature has and what was asked for. It matches
// its Err: ErrAlgorithm, ErrKeyID or ErrScope.
type MismatchError struct {
	Err       error
	Want, Got string
}

// Error implements error.
func (e *MismatchError) Error() string {
	name := func(text string) string {
		if text == "" {
			return "none"
		}
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%v: it has %s, expected %s", e.Err, name(e.Got), name(e.Want))
}

// Unwrap returns Err.
func (e *MismatchError) Unwrap() error { return e.Err }

// A FileError says which file of a bundle is not as it was signed. It matches its
// Err: ErrFileAdded, ErrFileMissing or ErrFileChanged.
type FileError struct {
	Err  error
	Name string
}

// Error implements error.
func (e *FileError) Error() string { return fmt.Sprintf("%v: %s", e.Err, e.Name) }

// Unwrap returns Err.
func (e *FileError) Unwrap() error { return e.Err }

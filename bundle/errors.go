package bundle

import "errors"

// Errors of this package, to be told apart with errors.Is.
var (
	// ErrOptions: what was asked for does not exist or does not go together.
	ErrOptions = errors.New("the options cannot be used")
	// ErrNotBundle: it is something else than a gzipped tarball.
	ErrNotBundle = errors.New("it is not a bundle")
	// ErrDamaged: it is a gzipped tarball, but cut off, changed, or with something in
	// it that no bundle has.
	ErrDamaged = errors.New("the bundle is damaged")
	// ErrTooLarge: it is larger, or unpacks to more, than a bundle may.
	ErrTooLarge = errors.New("it is too large")
)

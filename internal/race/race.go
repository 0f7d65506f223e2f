// Package race tells tests whether the race detector is on. It makes an
// evaluation ten times slower, and has pools of the standard library drop what
// was put into them, so that what costs no memory otherwise is allocated anew.
package race

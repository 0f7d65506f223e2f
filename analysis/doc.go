// Package analysis is the policy author's workbench.
package analysis

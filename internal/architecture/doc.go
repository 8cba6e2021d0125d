// Package architecture holds the test that enforces the rooms of docs/design.md.
//
// It promises that an import against the arrows, a package without a comment, or a
// second importer of CUE, sigstore or SSH fails the build's tests. It refuses to be
// imported: it has no code.
package architecture

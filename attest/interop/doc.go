// Package interop proves that narwhal's bundles are Sigstore's: sigstore-go and cosign
// verify what narwhal signs, and narwhal verifies what they sign, offline.
//
// It is a module of its own, so that narwhal links none of them, and it runs the narwhal
// program instead of importing its packages: the libraries of both sides need different
// versions of one module.
package interop

//go:build race

package fabric

// raced: the race detector slows what is measured more than the faults do.
const raced = true

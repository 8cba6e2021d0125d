//go:build !race

package fabric

const raced = false

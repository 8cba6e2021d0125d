//go:build !unix

package wire

func (c *conn) quiet() bool { return true }

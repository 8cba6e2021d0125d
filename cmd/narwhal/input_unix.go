//go:build unix

package main

import "syscall"

// openWithoutWaiting opens a pipe that has no writer at once.
const openWithoutWaiting = syscall.O_NONBLOCK

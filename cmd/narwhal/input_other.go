//go:build !unix

package main

const openWithoutWaiting = 0

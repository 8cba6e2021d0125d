package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// watchProcesses reads every command line of the machine, again and again, and returns
// the first that holds the text.
func watchProcesses(ctx context.Context, text string) string {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range lines {
			if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(text)) {
				return strings.ReplaceAll(string(b), "\x00", " ")
			}
		}
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
		}
	}
}

// unzipped is the content of a gzip file, nil for any other.
func unzipped(b []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	out, _ := io.ReadAll(r)
	return out
}

// Package realengines starts real vLLM engines (the CPU build, with NIXL over TCP) for tests
// that ask for them. It promises that every process it starts has ended when its test has;
// it refuses to install anything: install.sh does, once, and make real-engines calls it.
package realengines

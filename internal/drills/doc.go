// Package drills holds a table of faults and the tests that provoke each of them.
//
// It promises that a fault is injected for real (on a sandbox's hosts, on hosts with OpenSSH in
// network namespaces, or on one whose first process is systemd), that the program which
// operators run is asked, and that its exit code, code and hint are compared with the table.
// It refuses a fault that passes.
// Everything lies in its tests: `make drills` runs the whole table and writes
// docs/drills.md, `go test` runs a short part of it.
package drills

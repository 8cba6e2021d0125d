package sandbox

import "testing"

// The port after the fabric's belongs to nobody: with another tool its server listens there.
func TestFabricPortsStandApart(t *testing.T) {
	all := []int{105, 101, 102, 103, 104, 106, 205, 206, 207, 208, 209, 210}
	a, b := all[:6], all[6:]
	apart(a, all)
	apart(b, all)
	if a[4] != 106 || b[4] != 210 || a[5] != 104 || b[5] != 209 {
		t.Errorf("ports %v and %v", a, b)
	}
}

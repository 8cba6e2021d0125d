package engine

import "testing"

func TestNewRoom(t *testing.T) {
	seen := map[uint64]bool{}
	high := false
	for range 200 {
		r := NewRoom()
		if r>>63 != 0 || seen[r] {
			t.Fatal(r)
		}
		seen[r] = true
		high = high || r>>53 != 0
	}
	if !high {
		t.Fatal("rooms use a few bits only")
	}
}

func FuzzParseSwitched(f *testing.F) {
	f.Add(200, []byte(`{"success":true,"safe_to_restore":false,"message":"\u001b"}`))
	f.Add(400, []byte(`{"success":null}`))
	f.Fuzz(func(t *testing.T, status int, b []byte) {
		got, err := parseSwitched(status, b)
		if err == nil && got.Success && status/100 != 2 {
			t.Fatalf("%d %s: %+v", status, b, got)
		}
		if got.Message != Printable(got.Message, maxMessage) {
			t.Fatalf("%q", got.Message)
		}
	})
}

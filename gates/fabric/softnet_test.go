package fabric

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func TestShedByKernel(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0,
		"08934ae2 0000176b 0000001c 00000000\n080b5f87 000015d7 00000021 00000000\n": 0x176b + 0x15d7,
		"1\n2 x\n\n3 ffffffffff 4\n5 0a\n":                                           10,
	} {
		path := filepath.Join(t.TempDir(), "softnet_stat")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := shedByKernel(path); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := shedByKernel(filepath.Join(t.TempDir(), "none")); got != 0 {
		t.Errorf("no file: %d", got)
	}
}

func TestAgree(t *testing.T) {
	for _, c := range []struct {
		repeats []float64
		want    bool
	}{{nil, false}, {[]float64{9}, false}, {[]float64{9, 5, 8.5}, true}, {[]float64{9, 5, 6}, false}, {[]float64{0, 0, 0}, true}} {
		if got := agree(c.repeats); got != c.want {
			t.Errorf("%v: %v", c.repeats, got)
		}
	}
}

func TestFewTrainsAreTooFew(t *testing.T) {
	for d, want := range map[*Direction]bool{
		{Datagrams: 100, Arrived: 100}: false, {Datagrams: 100, Arrived: 99}: true, {Datagrams: 100, Arrived: 96}: false,
		{Datagrams: 100, Arrived: 90, Overrun: 10}: true, {Datagrams: 100, Arrived: 80, Overrun: 10}: false,
	} {
		if got := few(*d); got != want {
			t.Errorf("%+v: %v", *d, got)
		}
	}
}

// TestLawOfOneSize: where a sample held one size alone, its start follows from the link's rate.
func TestLawOfOneSize(t *testing.T) {
	m, ok := law([]Point{{Bytes: 1 << 20, Seconds: 0.05 + 8*float64(1<<20)/1e9}}, 1)
	if !ok || m.start < 0.0499 || m.start > 0.0501 || m.rate != 125e6 {
		t.Errorf("%+v, %v", m, ok)
	}
	if _, ok := law([]Point{{Bytes: 1, Seconds: 1}}, 0); ok {
		t.Error("a law without a rate")
	}
	if m, ok := law([]Point{{Bytes: 1 << 20, Seconds: 0.001}}, 1); !ok || m.start != 0 {
		t.Errorf("faster than the link: %+v", m)
	}
}

// TestLateDatagramsCount: what arrives after its train was counted is there at the next look, and
// no train counts more than was sent.
func TestLateDatagramsCount(t *testing.T) {
	_, d := listening(t)
	defer d.conn.Close()
	p, err := d.session(newToken())
	if err != nil {
		t.Fatal(err)
	}
	take := func(from, to int) {
		for i := from; i < to; i++ {
			d.take(packDatagram(kindTrain, p.token, uint32(i), nil), netip.AddrPort{})
		}
	}
	p.begin()
	take(0, 9)
	if got, _ := p.arrived(); got != 9 {
		t.Errorf("%d arrived, want 9", got)
	}
	take(9, 20) // the last of the first train, and the second
	take(0, 5)  // and some twice
	if got, _ := p.arrived(); got != 20 {
		t.Errorf("%d arrived, want 20", got)
	}
}

package schema

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// fleetOf writes a fleet of n engines, each on a host of its own.
func fleetOf(n int) []byte {
	var b strings.Builder
	list := func(open, end string, item func(i int) string) {
		b.WriteString(open)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		b.WriteString(end)
	}
	b.WriteString(`{"schema":"narwhal.fleet","schema_version":2,"model":"m","slo":{"ttft_s":1,"tpot_s":0.1},`)
	list(`"engines":[`, `],`, func(i int) string {
		return fmt.Sprintf(`{"iid":"e%d","url":"http://h%d.example:8100","attestation_url":"http://h%d.example:8110/v1/attestation","role":"prefill"}`+"\n", i, i, i)
	})
	b.WriteString(`"controller":{"min_prefill":1},"deploy":{"name":"big","router":{"host":"h0"},"defaults":{"launch":"a"},"launch":{"a":{"kind":"process","argv":["x"],"ports":{"ucx":"45000-45100"}}},`)
	list(`"hosts":{`, `},`, func(i int) string {
		return fmt.Sprintf(`"h%d":{"address":"h%d.example","host_keys":["SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]}`+"\n", i, i)
	})
	list(`"engines":{`, `}}}`, func(i int) string { return fmt.Sprintf(`"e%d":{"host":"h%d"}`, i, i) })
	return []byte(b.String())
}

func benchmarkValidate(b *testing.B, n int) {
	src := []Source{{"fleet.json", fleetOf(n)}}
	b.ReportAllocs()
	for b.Loop() {
		doc, err := Load(context.Background(), src, Options{})
		if err != nil || len(doc.Fleet.Engines) != n {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate6(b *testing.B)    { benchmarkValidate(b, 6) }
func BenchmarkValidate2000(b *testing.B) { benchmarkValidate(b, 2000) }

// A fleet without the deploy section, as the reference writes it.
func BenchmarkValidatePlain2000(b *testing.B) {
	src := fleetOf(2000)
	plain := string(src[:strings.Index(string(src), `,"deploy":`)]) + "}"
	for b.Loop() {
		if _, err := Load(context.Background(), []Source{{"fleet.json", []byte(plain)}}, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// What explain alone costs.
func BenchmarkExplain2000(b *testing.B) {
	rep := &report{sources: []*source{{name: "fleet.json", data: fleetOf(2000)}}}
	n := read(rep)
	for b.Loop() {
		if explain(rep, n); len(rep.errors) > 0 {
			b.Fatal(fields(rep.errors))
		}
	}
}

package tenant

import (
	"fmt"
	"testing"
)

// Find compares with every key of the table.
func BenchmarkFind(b *testing.B) {
	for _, n := range []int{8, 64, MaxTenants} {
		rows := make([]string, n)
		for i := range rows {
			rows[i] = fmt.Sprintf("t%d", i)
		}
		s := NewSet(table(b, rows...))
		for _, who := range []string{"first", "last", "nobody"} {
			header := "Bearer " + map[string]string{"first": "t0", "last": rows[n-1], "nobody": "x"}[who] + "-key"
			b.Run(fmt.Sprintf("%d/%s", n, who), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _ = s.Find(header, "")
				}
			})
		}
	}
}

// Admit and Done of the tenant above its share, beside others that all want seats: the
// longest way through.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{1, 8, 64, MaxTenants} {
		rows := make([]string, n)
		for i := range rows {
			rows[i] = fmt.Sprintf(`t%d "weight":%d,"tokens_per_s":1e9,"burst_tokens":1e9`, i, i+1)
		}
		tab := table(b, rows...)
		l := New(2*n+4, tab)
		for _, t := range tab.Tenants() {
			if _, _, why := l.Admit(0, t, 1); why != Admitted {
				b.Fatal(why)
			}
		}
		now, t := 0.0, tab.Tenants()[0]
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now += 1e-5
				s, _, _ := l.Admit(now, t, 10)
				l.Done(now, s, 10)
			}
		})
	}
}

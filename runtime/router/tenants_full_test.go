package router

import (
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
)

// A tenant that is turned away because the router is full gets the next seat before one above its share.
func TestAFullRouterKeepsShares(t *testing.T) {
	r := offline(t, 1, 1)
	table, err := tenant.Read(strings.NewReader(`{"schema":"narwhal.tenants","schema_version":1,"tenants":[
		{"name":"a","weight":1,"keys":["` + tenant.KeyDigest("a-key-of-some-length") + `"]},{"name":"b","weight":3,"keys":["` + tenant.KeyDigest("b-key-of-some-length") + `"]}],"anonymous":null}`))
	if err != nil {
		t.Fatal(err)
	}
	o := r.own
	o.do(func() {
		o.set.limit, o.set.Fleet.Serving.QueueCapacity = 2, 2
		o.tenants = tenant.New(o.set.most(), table)
	})
	arrives := func(i int) (*request, *failure) {
		q := &request{r: r, tenant: table.Tenants()[i]}
		return q, q.arrive(nil)
	}
	var held []*request
	for range 4 {
		q, f := arrives(0)
		if f != nil {
			t.Fatal(f)
		}
		held = append(held, q)
	}
	if _, f := arrives(1); f == nil {
		t.Fatal("a full router took one more")
	}
	o.do(func() {
		o.n.retained--
		o.tenants.Done(o.now(), held[0].seat, 0)
	})
	if _, f := arrives(0); f == nil {
		t.Error("the seat went to the tenant above its share")
	}
	if _, f := arrives(1); f != nil {
		t.Errorf("the tenant below its share: %v", f)
	}
}

package tenant

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const planted = "sk-Pl4nted-Key"

func TestParse(t *testing.T) {
	tab, err := Parse([]byte(file(`{"name":"team-a","keys":["`+KeyDigest("1")+`","`+strings.ToUpper(KeyDigest("2")[7:])+`"]}`, "null")))
	if err == nil || !strings.Contains(err.Error(), "tenants[0].keys[1]") {
		t.Fatal(tab, err)
	}
	tab, err = Parse([]byte(file(`{"name":"team-a","keys":["`+KeyDigest("1")+`"],"weight":2,"max_inflight":64,"tokens_per_s":5000,"burst_tokens":2e4,"admin":true},
		{"name":"b","keys":["`+KeyDigest("2")+`"]}`, "{}")))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v %+v %+v", *tab.Tenants()[0], *tab.Tenants()[1], *tab.Tenants()[2])
	want := "{Name:b Limits:{Weight:1 MaxInflight:0 TokensPerS:0 BurstTokens:0} Admin:false} " +
		"{Name:team-a Limits:{Weight:2 MaxInflight:64 TokensPerS:5000 BurstTokens:20000} Admin:true} " +
		"{Name:anonymous Limits:{Weight:1 MaxInflight:0 TokensPerS:0 BurstTokens:0} Admin:false}"
	if got != want || !tab.HasAdmin() {
		t.Errorf("got %s", got)
	}
}

// Each fault names its member, once, and repeats no value.
func TestFaultsNameTheirMember(t *testing.T) {
	row := func(rest string) string {
		return file(`{"name":"a","keys":["`+KeyDigest("k")+`"]`+rest+`}`, "null")
	}
	with := func(s, old, new string) string { return strings.Replace(s, old, new, 1) }
	second := func(name, key string) string {
		return with(row(""), `}],`, `},{"name":"`+name+`","keys":["`+key+`"]}],`)
	}
	var many strings.Builder
	for i := range MaxTenants + 1 {
		fmt.Fprintf(&many, `,{"name":"t%d","keys":["%s"]}`, i, KeyDigest(fmt.Sprint(i)))
	}
	var keys strings.Builder
	for i := range MaxKeys {
		fmt.Fprintf(&keys, `,"%s"`, KeyDigest(fmt.Sprint(i)))
	}
	for text, member := range map[string]string{
		with(row(""), "narwhal.tenants", "x"):                     "schema",
		with(row(""), `"schema_version":1`, `"schema_version":2`): "schema_version",
		with(row(""), `"schema_version":1,`, ``):                  "schema_version",
		with(row(""), `"anonymous":null`, `"anonymus":null`):      "anonymus",
		with(row(""), `"anonymous":null`, `"anonymous":true`):     "anonymous",
		with(row(""), `"anonymous":null`, `"anonymous":{"x":1}`):  "anonymous.x",
		with(row(""), `"anonymous":null`, `"`+planted+`":null`):   "?",
		row(`,"keyz":1`):                                                    "tenants[0].keyz",
		row(`,"Weight":1`):                                                  "tenants[0].Weight",
		row(`,"weight":1,"weight":1`):                                       "tenants[0].weight",
		row(`,"weight":0`):                                                  "tenants[0].weight",
		row(`,"weight":-1`):                                                 "tenants[0].weight",
		row(`,"weight":"2"`):                                                "tenants[0].weight",
		row(`,"weight":1e999`):                                              "tenants[0].weight",
		row(`,"weight":null`):                                               "tenants[0].weight",
		row(`,"max_inflight":1.5`):                                          "tenants[0].max_inflight",
		row(`,"max_inflight":-1`):                                           "tenants[0].max_inflight",
		row(`,"max_inflight":10000000`):                                     "tenants[0].max_inflight",
		row(`,"tokens_per_s":-1`):                                           "tenants[0].tokens_per_s",
		row(`,"tokens_per_s":5`):                                            "tenants[0].burst_tokens",
		row(`,"burst_tokens":5`):                                            "tenants[0].burst_tokens",
		row(`,"admin":"yes"`):                                               "tenants[0].admin",
		with(row(""), `"a"`, `"A b"`):                                       "tenants[0].name",
		with(row(""), `"a"`, `"anonymous"`):                                 "tenants[0].name",
		with(row(""), `"a"`, `1`):                                           "tenants[0].name",
		with(row(""), `"name":"a",`, ``):                                    "tenants[0].name",
		with(row(""), KeyDigest("k"), planted):                              "tenants[0].keys[0]",
		with(row(""), KeyDigest("k"), KeyDigest("k")[:70]):                  "tenants[0].keys[0]",
		with(row(""), `["`+KeyDigest("k")+`"]`, `[]`):                       "tenants[0].keys",
		with(row(""), `["`+KeyDigest("k")+`"]`, `"x"`):                      "tenants[0].keys",
		with(row(""), KeyDigest("k")+`"`, KeyDigest("k")+`",7`):             "tenants[0].keys[1]",
		with(row(""), KeyDigest("k")+`"`, KeyDigest("k")+`"`+keys.String()): "tenants[0].keys",
		second("a", KeyDigest("l")):                                         "tenants[1].name",
		second("b", KeyDigest("k")):                                         "tenants[1].keys[0]",
		file("7", "null"):                                                   "tenants[0]",
		file("", "null"):                                                    "tenants",
		file(many.String()[1:], "null"):                                     "tenants",
		with(row(""), `"tenants":[`, `"tenants":{},"x":[`):                  "x tenants",
		"":                     "",
		"[]":                   "schema schema_version tenants",
		row("") + "{}":         "",
		row(`,"weight":1,`):    "",
		row(",\"x\":\"\xff\""): "",
		strings.Repeat("[", 20) + strings.Repeat("]", 20): "",
		strings.Repeat(" ", MaxFileBytes+1):               "",
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("accepted, want a fault of %q: %.300s", member, text)
			continue
		}
		if strings.Contains(err.Error(), planted) {
			t.Errorf("a value is repeated: %v", err)
		}
		var first *FileError
		if !errors.As(err, &first) || !strings.HasPrefix(member, first.Member) && first.Member != member {
			t.Errorf("%.200s: got %v, want %q", text, err, member)
		}
		if n := strings.Count(err.Error(), "\n") + 1; n > 1 && !strings.Contains(member, " ") {
			t.Errorf("one fault gave %d: %v", n, err)
		}
	}
}

func TestLiteralKeyHasAHint(t *testing.T) {
	_, err := Parse([]byte(file(`{"name":"a","keys":["`+planted+`"]}`, "null")))
	var f *FileError
	if !errors.As(err, &f) || f.Member != "tenants[0].keys[0]" || !strings.Contains(f.Hint, "sha256sum") {
		t.Errorf("%v", err)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, err := Parse([]byte(file(strings.Repeat("7,", 200)+"7", "null")))
	if n := strings.Count(err.Error(), "\n"); n != maxFaults || !strings.HasSuffix(err.Error(), "151 more faults") {
		t.Errorf("%d: %v", n, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(file(`{"name":"a","keys":["`+KeyDigest("k")+`"],"weight":2,"max_inflight":64,"tokens_per_s":5000,"burst_tokens":20000,"admin":false}`, `{"weight":1}`)))
	f.Add([]byte(`{"tenants":[{"keys":[1]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tab, err := Parse(b)
		if (tab == nil) == (err == nil) {
			t.Fatal(tab, err)
		}
		if tab == nil {
			return
		}
		names := map[string]bool{}
		for _, x := range tab.Tenants() {
			l := x.Limits
			if names[x.Name] || !tenantName.MatchString(x.Name) || !(l.Weight > 0) || l.MaxInflight < 0 || l.TokensPerS > 0 && !(l.BurstTokens >= 1) {
				t.Fatalf("%+v", x)
			}
			names[x.Name] = true
		}
	})
}

package engine

import (
	"strings"
	"testing"
)

func TestParseMetrics(t *testing.T) {
	in := "# HELP a x\n# TYPE a counter\n" +
		`a{x="1",y="q\"\\n\n,}"} 2.5` + "\n" + `a{x="2",} 3 1700000000` + "\n" +
		"b 1e9\nbad line here\n{x=\"1\"} 3\nc{x=\"1\" 4\nd NaN\ne{} 7\n" + strings.Repeat("z", 200_000) + "\nf 1"
	s, err := ParseMetrics(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := s.Sum("a"); !ok || v != 5.5 {
		t.Fatal(v, ok)
	}
	if v, ok := s.Sum("a", "x", "2"); !ok || v != 3 {
		t.Fatal(v, ok)
	}
	if _, ok := s.Sum("a", "x", "9"); ok {
		t.Fatal("matched nothing")
	}
	if got := s.All("a")[0].Label("y"); got != "q\"\\n\n,}" {
		t.Fatalf("%q", got)
	}
	for _, n := range []string{"b", "e", "f"} {
		if _, ok := s.Sum(n); !ok {
			t.Error(n, "missing")
		}
	}
	if s.Skipped != 4 || s.Len() != 6 {
		t.Fatal(s.Skipped, s.Len())
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, "a{x=\"1\"} 1\n"), nil }

func TestParseMetricsIsBounded(t *testing.T) {
	if _, err := ParseMetrics(endless{}); err == nil {
		t.Fatal("an endless scrape was read")
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add("a{x=\"1\"} 2\n")
	f.Add("# c\na 1\n\n{")
	f.Add("a{x=\"\\\"\\n\\\\\"} +Inf 3")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseMetrics(strings.NewReader(in))
		if err == nil && s.Len()+s.Skipped > strings.Count(in, "\n")+1 {
			t.Fatal("more samples than lines")
		}
	})
}

func TestParseStatusError(t *testing.T) {
	cases := []struct {
		status int
		body   string
		typ    string
		msg    string
	}{
		{400, `{"error":{"message":"no","type":"BadRequestError","param":null,"code":400}}`, TypeBadRequest, "no"},
		{400, `{"object":"error","message":"flat","type":"BadRequestError","param":null,"code":400}`, TypeBadRequest, "flat"},
		{500, `{"object":"list","message":"other"}`, "", ""},
		{404, `{"detail":"Not Found"}`, "", "Not Found"},
		{401, `{"error":"Unauthorized"}`, "", "Unauthorized"},
		{503, ``, "", ""},
		{500, `<html>`, "", ""},
		{500, `{"error":{"message":"a\u001b[31mb\nc","type":7}}`, "", "a[31mb c"},
	}
	for _, c := range cases {
		e := ParseStatusError(c.status, []byte(c.body))
		if e.Status != c.status || e.Type != c.typ || e.Message != c.msg {
			t.Errorf("%s: %+v", c.body, e)
		}
	}
	if !ParseStatusError(503, []byte(`{"error":{"type":"Service Unavailable"}}`)).Busy() || ParseStatusError(503, nil).Busy() {
		t.Error("busy is not told from dead")
	}
}

func TestImpossibleNumbersAreNone(t *testing.T) {
	for _, c := range []struct {
		value              string
		quantity, requests bool
	}{
		{"0", true, true}, {"3", true, true}, {"1e9", true, true}, {"1e10", true, false}, {"1e19", true, false},
		{"NaN", false, false}, {"+Inf", false, false}, {"-Inf", false, false}, {"-1", false, false},
	} {
		s, err := ParseMetrics(strings.NewReader("a " + c.value + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Quantity("a"); ok != c.quantity {
			t.Errorf("%s as a quantity: %v", c.value, ok)
		}
		if _, ok := s.Requests("a"); ok != c.requests {
			t.Errorf("%s as requests: %v", c.value, ok)
		}
	}
}

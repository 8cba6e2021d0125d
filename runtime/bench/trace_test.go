package bench

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.4799600,3180,8\n"

func TestReadFormats(t *testing.T) {
	for name, text := range map[string]string{
		"azure":    azure,
		"mooncake": `{"timestamp": 1000, "input_length": 4808, "output_length": 10, "hash_ids": [0]}` + "\n" + `{"timestamp": 1500, "input_length": 3180, "output_length": 8}`,
		"journal": `{"meta":{"schema":"narwhal.journal","schema_version":1}}
{"schema":"narwhal.journal","schema_version":1,"rid":"b","at_unix":1000.5,"input_len":3180,"input_sized":true,"wanted_len":8,"output_len":0,"terminal":"refused"}
{"schema":"narwhal.journal","schema_version":1,"rid":"c","at_unix":1000.2,"input_sized":false,"terminal":"invalid"}
{"schema":"narwhal.journal","schema_version":1,"event":"role_moved","at":3}
{"schema":"narwhal.journal","schema_version":1,"rid":"a","at_unix":1000,"input_len":4808,"input_sized":true,"wanted_len":90,"output_len":10,"terminal":"completed"}
{"schema":"narw`,
		"plain":    "at_s,input,output,class\n0,4808,10,code\n0.5,3180,8,code\n",
		"unsorted": "at_s,class,input,output\n0.5,code,3180,8\n\n0,code,4808,10\n",
	} {
		for _, zipped := range []bool{false, true} {
			raw := []byte(text)
			if zipped {
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				_, _ = z.Write(raw)
				_ = z.Close()
				raw = b.Bytes()
			}
			got, err := Read(bytes.NewReader(raw), "code")
			want := []Arrival{{At: 0, Input: 4808, Output: 10, Class: "code"}, {At: 500 * time.Millisecond, Input: 3180, Output: 8, Class: "code"}}
			if err != nil || len(got.Arrivals) != 2 || got.Arrivals[0] != want[0] || (got.Arrivals[1].At-want[1].At).Abs() > time.Millisecond || got.Arrivals[1].Input != 3180 {
				t.Errorf("%s (gzip %v): %+v, %v", name, zipped, got, err)
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":        "",
		"only header":  "at_s,input,output,class\n",
		"unknown":      "a,b,c\n1,2,3\n",
		"bad time":     "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n",
		"bad number":   "at_s,input,output\n0,x,2\n",
		"negative":     "at_s,input,output\n0,-1,2\n",
		"NaN":          "at_s,input,output\nNaN,1,2\n",
		"huge":         "at_s,input,output\n0,99999999999,2\n",
		"missing":      `{"timestamp": 3}`,
		"long line":    "at_s,input,output\n" + strings.Repeat("9", maxTraceLine+1),
		"broken gzip":  "\x1f\x8bxxxx",
		"journal":      `{"meta":{"schema":"narwhal.journal","schema_version":2}}` + "\n",
		"torn rows":    `{"meta":{"schema":"narwhal.journal","schema_version":1}}` + "\nx\n" + `{"schema":"narwhal.journal","schema_version":1,"rid":"a","input_sized":true,"terminal":"completed"}` + "\n",
		"no requests":  `{"meta":{"schema":"narwhal.journal","schema_version":1}}` + "\n",
		"short record": "at_s,input,output\n1\n",
	} {
		if got, err := Read(strings.NewReader(text), ""); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestEmbedded(t *testing.T) {
	conv, err := Embedded("azure-conv")
	if err != nil || len(conv.Arrivals) != 480 || conv.Arrivals[0].Class != "conv" {
		t.Fatalf("%d, %v", len(conv.Arrivals), err)
	}
	both, err := Embedded("azure")
	if err != nil || len(both.Arrivals) != 961 || !both.Start.Equal(conv.Start) {
		t.Fatalf("%d, %v", len(both.Arrivals), err)
	}
	if !slices.IsSortedFunc(both.Arrivals, func(a, b Arrival) int { return int(a.At/1000 - b.At/1000) }) || both.Arrivals[960].At > 90*time.Second {
		t.Error("merged trace is out of order or too long")
	}
	if _, err := Embedded("../run"); err == nil {
		t.Error("opened something else")
	}
}

func TestOpenNamesTheClass(t *testing.T) {
	path := filepath.Join(t.TempDir(), "night.csv")
	if err := os.WriteFile(path, []byte(azure), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Open(path, "")
	if err != nil || got.Arrivals[0].Class != "night" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestShape(t *testing.T) {
	tr, err := Read(strings.NewReader(azure), "c")
	if err != nil {
		t.Fatal(err)
	}
	got := tr.Shape(3, 2, 4000, 9)
	if len(got) != 3 || got[1].At != 500*time.Millisecond || got[0].Input != 4000 || got[2].Input != 4000 || got[0].Output != 9 || got[1].Output != 8 {
		t.Errorf("%+v", got)
	}
	if got := tr.Shape(4, 0, 0, 0); got[2].At <= got[1].At {
		t.Errorf("second lap: %+v", got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(azure))
	f.Add([]byte(`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}`))
	f.Add([]byte("at_s,input,output,class\n0.019760,512,256,quiet\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Read(bytes.NewReader(b), "c")
		if err != nil {
			return
		}
		last := time.Duration(-1 << 62)
		for _, a := range got.Arrivals {
			if a.At < last || a.Input < 0 || a.Output < 0 || a.Input > maxLength {
				t.Fatalf("arrival %+v after %v", a, last)
			}
			last = a.At
		}
	})
}

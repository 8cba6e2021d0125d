package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func listing(t testing.TB, lines ...string) Listing {
	t.Helper()
	l, err := ParseListing(lines)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParseListing(t *testing.T) {
	l := listing(t, "3 100 7 ./b/w 1.safetensors", "0 -5 8 ./a", "9 1 1 ./README.md", "9 1 2 ./b/README.md", "9 1 3 ./.cache/huggingface/x", "odd ./sock", "1 1 4 ./new\\nline")
	if got := fmt.Sprint(l.Files); got != "[{a 0  -5 8} {b/README.md 9  1 2} {b/w 1.safetensors 3  100 7}]" || len(l.Odd) != 2 {
		t.Errorf("%s, odd %q", got, l.Odd)
	}
	for _, bad := range []string{"x", "1 2 3", "x 1 1 ./a", "1 1 1 /etc/passwd", "-1 1 1 ./a", "1 1 1 a"} {
		if _, err := ParseListing([]string{bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if _, err := ParseListing([]string{"1 1 1 ./a", "1 1 1 ./a"}); err == nil {
		t.Error("a path twice is accepted")
	}
	if l := listing(t, "1 1 1 ./../../etc/shadow", "1 1 1 ./\xff", "1 1 1 ./a//b"); len(l.Files) != 0 || len(l.Odd) != 3 {
		t.Errorf("%+v", l)
	}
}

func TestParseDigests(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	got := ParseDigests([]string{sum + "  ./a b", sum + " *c", sum + " *./d/e", "x  ./f", sum + " g", "sha256sum: ./h: Permission denied"})
	if len(got) != 3 || got["a b"] != sum || got["c"] != sum || got["d/e"] != sum {
		t.Errorf("%v", got)
	}
}

// TestRoot pins the digest to the one that Python's json.dumps(files, sort_keys=True,
// separators=(",", ":")) gives.
func TestRoot(t *testing.T) {
	m := NewManifest([]File{{Path: "b \"q\" é🐳", Size: 2, SHA256: strings.Repeat("b", 64), MTime: 5, Inode: 6}, {Path: "a", Size: 1, SHA256: strings.Repeat("a", 64)}})
	if m.Root != "b8696fa40e2d8dea99c12a27602e2c8dfd85f1eeea65c2b0798315f103e014fd" || m.Bytes != 3 || !m.Whole() {
		t.Errorf("%+v", m)
	}
	m.Files[0].SHA256 = strings.Repeat("c", 64)
	if m.Whole() {
		t.Error("a changed manifest is whole")
	}
	if (Manifest{}).Whole() {
		t.Error("nothing is whole")
	}
}

func TestCompare(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	one := NewManifest([]File{{Path: "x", SHA256: a}, {Path: "y", SHA256: a}})
	for name, c := range map[string]struct {
		files []File
		want  string
	}{
		"equal":       {[]File{{Path: "y", SHA256: a, MTime: 9}, {Path: "x", SHA256: a}}, ""},
		"content":     {[]File{{Path: "x", SHA256: b}, {Path: "y", SHA256: b}}, "x"},
		"absent":      {[]File{{Path: "y", SHA256: a}}, "x"},
		"more before": {[]File{{Path: "a", SHA256: a}, {Path: "x", SHA256: a}, {Path: "y", SHA256: a}}, "a"},
		"more behind": {[]File{{Path: "x", SHA256: a}, {Path: "y", SHA256: a}, {Path: "z", SHA256: a}}, "z"},
		"nothing":     {nil, "x"},
	} {
		d, differ := Compare(one, NewManifest(c.files))
		if d.Path != c.want || differ != (c.want != "") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestCompareAgreesWithRoot: trees are equal when, and only when, their roots are.
func TestCompareAgreesWithRoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := func(name string) Manifest {
			var files []File
			for p := range rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.Bool(), 0, 3).Draw(t, name) {
				files = append(files, File{Path: p, Size: 1, SHA256: strings.Repeat(rapid.SampledFrom([]string{"0", "1"}).Draw(t, p), 64)})
			}
			return NewManifest(files)
		}
		a, b := tree("one"), tree("two")
		if _, differ := Compare(a, b); differ != (a.Root != b.Root) {
			t.Fatalf("%+v %+v: differ %t", a, b, differ)
		}
	})
}

func TestCache(t *testing.T) {
	sum := strings.Repeat("a", 64)
	c := Cache{}
	c.Put("/m", []File{{Path: "x", Size: 1, MTime: 2, Inode: 3, SHA256: sum}, {Path: "y", Size: 9, SHA256: "short"}})
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	c = ReadCache(b)
	for name, f := range map[string]File{"size": {Path: "x", Size: 2, MTime: 2, Inode: 3}, "time": {Path: "x", Size: 1, MTime: 3, Inode: 3}, "inode": {Path: "x", Size: 1, MTime: 2, Inode: 4}, "digest": {Path: "y", Size: 9}, "path": {Path: "z"}} {
		if files := []File{f}; len(c.Take("/m", files)) != 1 || files[0].SHA256 != "" {
			t.Errorf("%s: taken from the cache", name)
		}
	}
	files := []File{{Path: "x", Size: 1, MTime: 2, Inode: 3}, {Path: "s", Size: 1}, {Path: "l", Size: 5}}
	missing := c.Take("/m", files)
	if len(missing) != 2 || missing[0].Path != "l" || files[0].SHA256 != sum {
		t.Errorf("%+v %+v", missing, files)
	}
	if got := c.Take("/other", slices.Clone(files)); len(got) != 3 {
		t.Errorf("another folder: %+v", got)
	}
	for _, bad := range []string{"", "null", "[]", `{"a":1}`} {
		if got := ReadCache([]byte(bad)); got == nil || len(got) != 0 {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func TestParseConfig(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"llama":       {`{"architectures":["LlamaForCausalLM"],"model_type":"llama","torch_dtype":"bfloat16","max_position_embeddings":131072,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"hidden_size":4096}`, `{"architectures":["LlamaForCausalLM"],"type":"llama","dtype":"bfloat16","context":131072,"layers":32,"heads":32,"kv_heads":8,"head_size":128}`},
		"multimodal":  {`{"model_type":"mllama","text_config":{"dtype":"torch.float16","max_position_embeddings":4096,"num_attention_heads":4,"head_dim":64},"vision_config":{}}`, `{"type":"mllama","dtype":"float16","context":4096,"heads":4,"kv_heads":4,"head_size":64}`},
		"custom code": {`{"auto_map":{"AutoConfig":"configuration_x.XConfig","AutoModel":["m.A",null]},"vision":[{"auto_map":{}}]}`, `{"code":["AutoConfig = configuration_x.XConfig","AutoModel = m.A"]}`},
		"mamba":       {`{"mamba_d_conv":4,"layers_block_type":["mamba"]}`, `{"convolution":true}`},
		"hybrid":      {`{"layer_types":["linear_attention","full_attention"],"linear_conv_kernel_dim":4}`, `{"convolution":true}`},
		"linear only": {`{"layer_types":["linear_attention"]}`, `{}`},
		"kda":         {`{"text_config":{"linear_attn_config":{"kda_layers":[1],"short_conv_kernel_size":4}}}`, `{"convolution":true}`},
		"fp8":         {`{"quantization_config":{"quant_method":"fp8"}}`, `{"quantized":"fp8"}`},
		"odd types":   {`{"architectures":"x","torch_dtype":7,"max_position_embeddings":"many","num_hidden_layers":-3,"text_config":[],"auto_map":0,"layer_types":{}}`, `{}`},
		"odd numbers": {`{"max_position_embeddings":1.5,"num_hidden_layers":1e300}`, `{}`},
		"hostile":     {`{"model_type":"a\u001b[2J\u202eb"}`, `{"type":"a[2Jb"}`},
	} {
		got, err := ParseConfig([]byte(c.in))
		b, _ := json.Marshal(got)
		if err != nil || string(b) != c.want {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
	for _, bad := range []string{"", "null", "[]", "{", "\xff", strings.Repeat("[", 20000), strings.Repeat(" ", MaxConfig+1)} {
		if _, err := ParseConfig([]byte(bad)); err == nil {
			t.Errorf("%.20q is accepted", bad)
		}
	}
}

func FuzzListing(f *testing.F) {
	f.Add("3 100 7 ./b/w 1\nodd ./x\n" + strings.Repeat("ab", 32) + "  ./a")
	f.Fuzz(func(t *testing.T, s string) {
		ParseDigests(strings.Split(s, "\n"))
		ReadCache([]byte(s))
		l, err := ParseListing(strings.Split(s, "\n"))
		if err != nil {
			return
		}
		for _, x := range l.Files {
			if !plain(x.Path) || x.Size < 0 {
				t.Errorf("accepted %+v", x)
			}
		}
		if m := NewManifest(l.Files); len(l.Files) > 0 && m.Whole() {
			t.Error("files without digests are whole")
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"text_config":{"dtype":"bfloat16"},"auto_map":{"A":["b"]},"layer_types":["mamba"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig(b)
		if err != nil {
			return
		}
		if strings.ContainsFunc(fmt.Sprint(c), unicode.IsControl) || c.Context < 0 || c.Layers < 0 || c.HeadSize < 0 {
			t.Errorf("accepted %+v", c)
		}
	})
}

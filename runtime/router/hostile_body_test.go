package router

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

type hostileBody struct {
	name, body string
	want       []int
	same       string // a body that is answered alike; "" = this one, asked of an engine
}

func hostileBodies() []hostileBody {
	const rest = `,"max_tokens":3,"ignore_eos":true,"temperature":0}`
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	objects := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	forged := `{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":"x"}`
	ok, either, refused := []int{200}, []int{200, 400}, []int{400}
	return []hostileBody{
		{"invalid UTF-8", "{\"prompt\":\"\xff\xfe whale\"" + rest, refused, ""},
		{"half a character", "{\"prompt\":\"whale \xe2\x82\"" + rest, refused, ""},
		{"overlong UTF-8", "{\"prompt\":\"whale \xc0\xaf\"" + rest, refused, ""},
		{"UTF-8 of a surrogate", "{\"prompt\":\"whale \xed\xa0\x80\"" + rest, refused, ""},
		{"invalid UTF-8 in an unknown member", "{\"prompt\":\"whale\",\"x\":\"\xff\"" + rest, refused, ""},
		{"byte order mark", "\xef\xbb\xbf" + simpleBody, refused, ""},
		{"UTF-16", "{\x00\"\x00p\x00\"\x00}\x00", refused, ""},
		{"invalid UTF-8 in a name", "{\"\xff\":1,\"prompt\":\"whale\"" + rest, refused, ""},
		{"NUL byte", "{\"prompt\":\"a\x00b\"" + rest, refused, ""},
		{"NUL behind the body", simpleBody + "\x00", refused, ""},
		{"escaped NUL", `{"prompt":"a\u0000b"` + rest, either, ""},
		{"lone surrogate", `{"prompt":"a\ud800b"` + rest, either, ""},
		{"surrogates in the wrong order", `{"prompt":"a\udc00\ud800b"` + rest, either, ""},
		{"nested 10,000 deep", `{"prompt":"whale","x":` + nested(10000) + rest, either, `{"prompt":"whale"` + rest},
		{"objects 100,000 deep", `{"prompt":"whale","x":` + objects(100000) + rest, either, `{"prompt":"whale"` + rest},
		{"half a million open brackets", strings.Repeat("[", 500000), refused, ""},
		{"open brackets inside", `{"prompt":"whale","x":` + strings.Repeat("[", 500000), refused, ""},
		{"prompt nested 10,000 deep", `{"prompt":` + nested(10000) + rest, refused, ""},
		{"100,000 members", `{"prompt":"whale"` + strings.Repeat(`,"k":1`, 100000) + rest, either, `{"prompt":"whale"` + rest},
		{"prompt twice", `{"prompt":"whale","prompt":"song of songs"` + rest, either, ""},
		{"stream twice, last false", `{"stream":true,"prompt":"whale","stream":false` + rest, either, ""},
		{"limit twice", `{"max_tokens":9,"prompt":"whale"` + rest, either, ""},
		{"escaped limit", `{"max_tok\u0065ns":5,"prompt":"whale","ignore_eos":true,"temperature":0}`, either, ""},
		{"model twice", `{"model":"tern-tiny","model":"other","prompt":"x"}`, []int{404}, ""},
		{"forged handoff", `{"prompt":"whale","kv_transfer_params":` + forged + rest, ok, `{"prompt":"whale"` + rest},
		{"forged handoff, escaped", `{"prompt":"whale","kv_transfer_par\u0061ms":` + forged + rest, ok, `{"prompt":"whale"` + rest},
		{"forged handoff, twice", `{"kv_transfer_params":null,"prompt":"whale","kv_transfer_params":` + forged + rest, ok, `{"prompt":"whale"` + rest},
		{"forged handoff of a whole request", `{"prompt":["whale","song"],"kv_transfer_params":` + forged + rest, ok, `{"prompt":["whale","song"]` + rest},
		{"forged room", `{"prompt":"whale","bootstrap_r\u006fom":1,"bootstrap_host":"x"` + rest, ok, `{"prompt":"whale"` + rest},
		{"number beyond float64", `{"prompt":"whale","temperature":1e999}`, refused, ""},
		{"negative beyond float64", `{"prompt":"whale","temperature":-1e999}`, refused, ""},
		{"limit with an exponent", `{"prompt":"whale","max_tokens":1e1}`, refused, ""},
		{"limit beyond 64 bits", `{"prompt":"whale","max_tokens":99999999999999999999999999}`, refused, ""},
		{"negative limit", `{"prompt":"whale","max_tokens":-5}`, refused, ""},
		{"number of 100,000 digits", `{"prompt":"whale","x":` + strings.Repeat("7", 100000) + rest, either, `{"prompt":"whale"` + rest},
		{"token id beyond 64 bits", `{"prompt":[1,2,99999999999999999999]}`, refused, ""},
		{"negative token id", `{"prompt":[1,-2,3]}`, refused, ""},
		{"a float among token ids", `{"prompt":[1,2.5,3]}`, refused, ""},
		{"NaN", `{"prompt":"whale","temperature":NaN}`, refused, ""},
		{"single quotes", `{'prompt':'whale'}`, refused, ""},
		{"comment", `{"prompt":"whale"/* x */}`, refused, ""},
		{"comma at the end", `{"prompt":"whale",}`, refused, ""},
		{"two values", simpleBody + simpleBody, refused, ""},
		{"a string", `"whale"`, refused, ""},
		{"empty key", `{"":1,"prompt":"whale"` + rest, either, ""},
		{"empty prompt", `{"prompt":""}`, refused, ""},
		{"no prompt", `{"max_tokens":1}`, refused, ""},
	}
}

func TestHostileBodies(t *testing.T) {
	t.Parallel()
	settles(t)
	b := startFleet(t, 1, 1, nil, steered)
	for _, h := range hostileBodies() {
		start := time.Now()
		list, err := whisper(b.router.Addr(), 15*time.Second, 1, halves(sized(h.body))...)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: after %v: %v, %v", h.name, time.Since(start), list, err)
			continue
		}
		var errs []error
		r := list[0]
		if !slices.Contains(h.want, r.status) {
			errs = append(errs, fmt.Errorf("status %d, want %v: %.200s", r.status, h.want, r.body))
		}
		if r.status >= 400 && !r.openai() {
			errs = append(errs, fmt.Errorf("%d has no error of OpenAI's form: %.200q", r.status, r.body))
		}
		if r.status == 200 {
			same := h.same
			if same == "" {
				same = h.body
			}
			whole, err := whisper(b.engine("p0").Addr(), 10*time.Second, 1, sized(same))
			if err != nil || len(whole) != 1 || whole[0].status != 200 || text(t, whole[0].body) != text(t, r.body) {
				errs = append(errs, fmt.Errorf("the router says %.200s, an engine %.200s, %v", r.body, fmt.Sprint(whole), err))
			}
		}
		if b.engine("d0").State().Dead || b.engine("p0").State().Dead {
			t.Fatalf("%s: an engine died of it", h.name)
		}
		judge(t, "hostile/"+h.name, errs...)
	}
	b.serves("all of it")
	if err := b.settle(); err != nil {
		t.Error(err)
	}
	if got := b.strikes(); got != "" {
		t.Errorf("breakers count %s", got)
	}
}

// halves cuts a request into writes at places that suit no character.
func halves(s string) []string {
	return []string{s[:len(s)/3], s[len(s)/3 : len(s)/2+1], s[len(s)/2+1:]}
}

// drip sends a beginning and then a byte at a time until the router ends the connection.
func drip(addr, beginning, piece string) (answer string, took time.Duration, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", 0, err
	}
	defer c.Close()
	start := time.Now()
	_ = c.SetDeadline(start.Add(10 * time.Second))
	if _, err := io.WriteString(c, beginning); err != nil {
		return "", 0, err
	}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := io.WriteString(c, piece); err != nil {
					return
				}
			}
		}
	})
	all, err := io.ReadAll(c)
	close(stop)
	beside.Wait()
	if len(all) > 0 {
		err = nil // a reset may follow an answer
	}
	return string(all), time.Since(start), err
}

// Clients that drip their requests are ended by the limits of head and body, and nobody else
// waits for them.
func TestHostileDrips(t *testing.T) {
	t.Parallel()
	settles(t)
	b := startFleet(t, 1, 1, nil, steered, func(c *Config) { c.HTTP.BodyTimeout, c.HTTP.HeaderTimeout = time.Second, time.Second })
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			beginning, want := "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ", ""
			if i%2 == 0 {
				beginning, want = wired("Content-Length: 5000\r\n", `{"prompt":"`), "HTTP/1.1 408"
			}
			answer, took, err := drip(b.router.Addr(), beginning, "x")
			if took > 8*time.Second || !strings.HasPrefix(answer, want) || want != "" && !strings.Contains(answer, `"error"`) {
				t.Errorf("ended after %v with %q, %v", took, answer, err)
			}
		})
	}
	b.serves("60 drips")
	all.Wait()
	eventually(t, "seats free", func() bool { return b.state().Admission["inflight"] == 0.0 })
}

package router

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

type hostileEngine struct {
	name   string
	at     string // p0 or d0
	script func(*villain, net.Conn)
	stream []string // what a streaming client may see; nil = a retry's 200
	buffer []string
}

func hostileEngines() []hostileEngine {
	mb := strings.Repeat("x", 1<<20)
	cutOff := []string{midStream}
	limited := []string{"502 decode decode", "200"} // by a retry where reading it takes too long
	return []hostileEngine{
		{"endless headers", "p0", endless("HTTP/1.1 200 OK\r\n", "x-a: b\r\n"), nil, nil},
		{"endless headers", "d0", endless("HTTP/1.1 200 OK\r\n", "x-a: b\r\n"), nil, nil},
		{"one endless header", "d0", endless("HTTP/1.1 200 OK\r\nx-a: ", mb), nil, nil},
		{"endless interim answers", "d0", endless("", "HTTP/1.1 103 Early\r\n\r\n"), nil, nil},
		{"endless leg 1", "p0", endless(jsonHead+`{"x":"`, mb), []string{"502 prefill prefill"}, []string{"502 prefill prefill"}},
		{"leg 1 nested deep", "p0", says(jsonHead + `{"usage":{"prompt_tokens":1},"kv_transfer_params":` + strings.Repeat("[", 500000)), nil, nil},
		{"leg 1 cut short", "p0", says("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"), nil, nil},
		{"redirect", "d0", says("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"), []string{"502 decode decode", "200"}, []string{"502 decode decode", "200"}},
		{"no HTTP", "d0", says("SSH-2.0-villain\r\n\r\n"), nil, nil},
		{"two lengths", "d0", says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc"), nil, nil},
		{"events without blank lines", "d0", endless(streamHead, strings.ReplaceAll(oneFrame, "\n\n", "\n")), limited, limited},
		{"events without blank lines after output", "d0", endless(streamHead+oneFrame, strings.ReplaceAll(oneFrame, "\n\n", "\n")), cutOff, limited},
		{"no line end at all", "d0", endless(streamHead+oneFrame+"data: ", mb), cutOff, limited},
		{"one event of 8 MB", "d0", says(streamHead + `data: {"choices":[{"index":0,"text":"` + strings.Repeat(mb, 8) + `"}]}` + "\n\n" + doneFrame), limited, limited},
		{"endless comments", "d0", endless(streamHead, ": hm\n\n"), nil, []string{"200", "502 decode decode", "504 decode decode"}},
		{"endless metadata", "d0", endless(streamHead, "data: {\"x\":1}\n\n"), nil, []string{"200", "502 decode decode"}},
		{"more output than a buffer holds", "d0", says(streamHead + strings.Repeat(oneFrame, 12000)), cutOff, limited},
		{"[DONE] inside text", "d0", says(streamHead + strings.Replace(oneFrame, " a", "data: [DONE]\\n\\n", 1) + lastFrame + doneFrame), []string{"200"}, []string{"200"}},
		{"[DONE] twice, output behind it", "d0", says(streamHead + oneFrame + lastFrame + doneFrame + oneFrame + doneFrame), []string{"200"}, []string{"200"}},
		{"[DONE] and then silence", "d0", mute(streamHead + oneFrame + lastFrame + doneFrame), []string{"200"}, []string{"200"}},
		{"[DONE] and then silence before the length", "d0", mute("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 5000\r\n\r\n" + oneFrame + lastFrame + doneFrame), []string{"200"}, []string{"200"}},
		{"comments instead of tokens", "d0", pings(streamHead + oneFrame), cutOff, []string{"200"}},
		{"a hundred comments before output", "d0", says(streamHead + strings.Repeat(": hm\n\n", 100) + oneFrame + lastFrame + doneFrame), []string{"200"}, []string{"200"}},
		{"no [DONE]", "d0", says(streamHead + oneFrame + lastFrame), cutOff, nil},
		{"[DONE] alone", "d0", says(streamHead + doneFrame), nil, nil},
		{"a choice nobody asked for", "d0", says(streamHead + oneFrame + strings.Replace(oneFrame, `"index":0`, `"index":1`, 1) + lastFrame + doneFrame), cutOff, nil},
		{"a choice nobody asked for beside the right one", "d0", says(streamHead + oneFrame + strings.Replace(oneFrame, `"choices":[{`, `"choices":[{"index":0,"text":" b"},{"x":1,`, 1) + strings.Replace(oneFrame, `"finish_reason":null}`, `"finish_reason":null},{"index":1,"text":" c"}`, 1) + lastFrame + doneFrame), cutOff, nil},
		{"an index below 0", "d0", says(streamHead + oneFrame + strings.Replace(oneFrame, `"index":0`, `"index":-1`, 1) + lastFrame + doneFrame), cutOff, nil},
		{"an index that is a word", "d0", says(streamHead + oneFrame + strings.Replace(oneFrame, `"index":0`, `"index":"0"`, 1) + lastFrame + doneFrame), cutOff, nil},
		{"text that is a number", "d0", says(streamHead + oneFrame + strings.Replace(oneFrame, `" a"`, `5`, 1) + lastFrame + doneFrame), cutOff, nil},
		{"a choice that is a word", "d0", says(streamHead + oneFrame + `data: {"choices":["x"]}` + "\n\n" + lastFrame + doneFrame), cutOff, nil},
		{"output behind the end", "d0", says(streamHead + oneFrame + lastFrame + oneFrame + lastFrame + doneFrame), cutOff, nil},
		{"a message", "d0", says(streamHead + oneFrame + strings.Replace(oneFrame, `"text":" a"`, `"message":{"content":" a"}`, 1) + lastFrame + doneFrame), cutOff, nil},
		{"an error within a choice", "d0", says(streamHead + oneFrame + strings.Replace(lastFrame, `"finish_reason"`, `"error":{"message":"worker 127.0.0.1:9 exploded"},"finish_reason"`, 1) + doneFrame), cutOff, nil},
		{"a finish reason that is an object", "d0", says(streamHead + oneFrame + strings.Replace(lastFrame, `"length"`, `{"type":"abort"}`, 1) + doneFrame), cutOff, nil},
		{"a choice twice in one event", "d0", says(streamHead + oneFrame + strings.Replace(oneFrame, `"choices":[`, `"choices":[{"index":0,"text":" b"},`, 1) + lastFrame + doneFrame), cutOff, nil},
		{"two ends that differ", "d0", says(streamHead + oneFrame + lastFrame + strings.NewReplacer(" b", "", "length", "stop").Replace(lastFrame) + doneFrame), cutOff, nil},
		{"a delta", "d0", says(streamHead + oneFrame + strings.Replace(oneFrame, `"text":" a"`, `"delta":{"content":" a"}`, 1) + lastFrame + doneFrame), cutOff, nil},
		{"an event of another name", "d0", says(streamHead + oneFrame + "event: other\n" + oneFrame + lastFrame + doneFrame), []string{"200"}, []string{"200"}},
		{"two ends", "d0", says(streamHead + oneFrame + lastFrame + strings.Replace(lastFrame, " b", "", 1) + doneFrame), []string{"200"}, []string{"200"}},
		{"an index of a billion", "d0", says(streamHead + strings.Replace(oneFrame, `"index":0`, `"index":1000000000`, 1) + lastFrame + doneFrame), nil, nil},
		{"choices that are none", "d0", says(streamHead + oneFrame + `data: {"choices":7,"usage":{}}` + "\n\n" + doneFrame), cutOff, nil},
		{"event nested deep", "d0", says(streamHead + oneFrame + `data: {"usage":` + strings.Repeat("[", 500000) + "\n\n" + doneFrame), []string{"200", midStream, "broken connection"}, []string{"200"}},
		{"finish_reason error", "d0", says(streamHead + oneFrame + strings.Replace(lastFrame, "length", "error", 1) + doneFrame), cutOff, nil},
		{"finish_reason ERROR", "d0", says(streamHead + oneFrame + strings.Replace(lastFrame, "length", "ERROR", 1) + doneFrame), cutOff, nil},
		{"an error that is a word", "d0", says(streamHead + oneFrame + `data: {"error":"oh"}` + "\n\n" + doneFrame), cutOff, nil},
		{"an error as older engines word it", "d0", says(streamHead + oneFrame + `data: {"object":"error","message":"worker 127.0.0.1:9 exploded","code":500}` + "\n\n" + doneFrame), cutOff, nil},
		{"an error without its member", "d0", says(streamHead + oneFrame + `data: {"message":"worker 127.0.0.1:9 exploded"}` + "\n\n" + doneFrame), cutOff, nil},
		{"errors in a list", "d0", says(streamHead + oneFrame + `data: {"errors":[{"message":"worker 127.0.0.1:9 exploded"}]}` + "\n\n" + lastFrame + doneFrame), cutOff, nil},
		{"[DONE] too early", "d0", says(streamHead + oneFrame + doneFrame), cutOff, nil},
		{"an event named error", "d0", says(streamHead + oneFrame + "event: error\ndata: worker 127.0.0.1:9 exploded\n\n" + doneFrame), cutOff, nil},
		{"an event torn in two", "d0", says(streamHead + oneFrame + oneFrame[:60] + "\n\n" + lastFrame + doneFrame), cutOff, nil},
		{"a torn event first", "d0", says(streamHead + oneFrame[:60] + "\n\n" + lastFrame + doneFrame), nil, nil},
		{"a bad chunk", "d0", says("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(oneFrame), oneFrame) + "ZZ\r\n"), cutOff, nil},
	}
}

func TestHostileEngines(t *testing.T) {
	t.Parallel()
	settles(t)
	for _, streamed := range []bool{true, false} {
		together(t, hostileEngines(), func(h hostileEngine) string { return fmt.Sprint(h.name, " of ", h.at, "/stream ", streamed) },
			func(t *testing.T, h hostileEngine) { h.run(t, streamed) })
	}
}

func (h hostileEngine) run(t *testing.T, streamed bool) {
	bad := &villain{stub: newStub("villain"), script: h.script}
	var engines []fleet.Engine
	for _, iid := range []string{"p0", "p1", "d0", "d1"} {
		v := &villain{stub: newStub(iid)}
		if iid == h.at {
			v, bad.stub = bad, v.stub
		}
		engines = append(engines, fleet.Engine{IID: iid, URL: "http://" + v.listen(t), Pin: true, Role: map[byte]string{'p': fleet.RolePrefill, 'd': fleet.RoleDecode}[iid[0]]})
	}
	cfg := childConfig(engines, "")
	steered(&cfg)
	patience(4)(&cfg)
	cfg.Fleet.Serving.MaxResponseBytes, cfg.Fleet.Serving.RequestTimeoutS = 1<<20, 60
	r, err := New(cfg)
	if err == nil {
		err = r.Start(limit(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &testbed{t: t, router: r, url: "http://" + r.Addr()}
	t.Cleanup(b.stop)
	bad.roused.Store(true)
	start := time.Now()
	s := watch(long(t), b.client(), b.url, map[string]any{"prompt": "x", "max_tokens": 2, "bench_frames": 2, "stream": streamed}, "", nil)
	want := h.buffer
	if streamed {
		want = h.stream
	}
	var errs []error
	if want == nil {
		want = []string{"200"}
	}
	if !slices.Contains(want, s.short()) {
		errs = append(errs, fmt.Errorf("the client sees %s (%v), want one of %v", s.short(), s.err, want))
	}
	if s.short() == "200" && streamed && s.done != 1 || len(s.failed) > 1 || len(s.failed) > 0 && s.done > 0 {
		errs = append(errs, fmt.Errorf("%d [DONE] and the errors %+v", s.done, s.failed))
	}
	if strings.Contains(s.text+fmt.Sprint(s.failed), "127.0.0.1") {
		errs = append(errs, fmt.Errorf("the client sees an engine's address in %q, %v", s.text, s.failed))
	}
	if n := bad.sent.Load(); n > tooMuch {
		errs = append(errs, fmt.Errorf("the router took %d MB", n>>20))
	}
	// One that only keeps its connection awake is left after 4 s, which a retry may need too.
	if took := time.Since(start); took > 40*time.Second {
		errs = append(errs, fmt.Errorf("answered after %v", took))
	}
	judge(t, fmt.Sprintf("hostile engine/%s of %s/stream %v", h.name, h.at, streamed), errs...)
	bad.roused.Store(false)
	if x := watch(long(t), b.client(), b.url, map[string]any{"prompt": "y", "max_tokens": 2}, "", nil); x.short() != "200" {
		t.Errorf("afterwards: %+v", x)
	}
}

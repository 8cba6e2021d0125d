package router

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// stub is an engine that costs nearly nothing: one goroutine a connection, answers made
// beforehand, no parsing beyond the head. A body's own fields say how it answers.
type stub struct {
	handoff string // body of leg 1's answer, with a place for the request's id
	frame   []byte
	last    []byte
}

func newStub(id string) *stub {
	head := `data: {"id":"cmpl-8b3b7a1c-2a0f-4b86-9a3b-2f1f0d6f0f7e","object":"text_completion","created":1764430000,"model":"tern-tiny","choices":[{"index":0,"text":"`
	body := `{"id":"cmpl-1","object":"text_completion","created":1764430000,"model":"tern-tiny","choices":[{"index":0,"text":" w","logprobs":null,"finish_reason":"length"}],` +
		`"usage":{"prompt_tokens":16,"total_tokens":17,"completion_tokens":1},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1]],` +
		`"remote_engine_id":"` + id + `","remote_request_id":"cmpl-%s-0-a38c36ce","remote_host":"127.0.0.1","remote_port":5600,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":16,` +
		`"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0}}`
	return &stub{handoff: body, frame: []byte(head + ` whale","logprobs":null,"finish_reason":null,"stop_reason":null}]}` + "\n\n"),
		last: []byte(head + ` end","logprobs":null,"finish_reason":"length","stop_reason":null}]}` + "\n\n")}
}

func whole(kind, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s", kind, len(body), body)
}

func (s *stub) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go s.conn(c)
	}
}

func (s *stub) conn(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		path, id, body, err := readCall(r)
		if err != nil {
			return
		}
		if err := s.answer(c, path, id, body); err != nil {
			return
		}
	}
}

func readCall(r *bufio.Reader) (path, id string, body []byte, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return "", "", nil, err
		}
		if first {
			path, _, _ = strings.Cut(strings.TrimSpace(string(line[bytes.IndexByte(line, ' ')+1:])), " ")
			continue
		}
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
		if len(line) > 16 && bytes.EqualFold(line[:15], []byte("content-length:")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(line[15:])))
		}
		if len(line) > 13 && bytes.EqualFold(line[:13], []byte("x-request-id:")) {
			id = string(bytes.TrimSpace(line[13:]))
		}
	}
	body = make([]byte, length)
	_, err = io.ReadFull(r, body)
	return path, id, body, err
}

// field is the number of a plain member, 0 when absent.
func field(body []byte, key string) int {
	_, after, ok := bytes.Cut(body, []byte(`"`+key+`":`))
	if !ok {
		return 0
	}
	n := 0
	for _, c := range after {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int(c-'0')
	}
	return n
}

func (s *stub) answer(c net.Conn, path, id string, body []byte) error {
	switch path {
	case "/health":
		return put(c, whole("text/plain", ""))
	case "/version":
		return put(c, whole("application/json", `{"version":"0.32.0"}`))
	case "/v1/models":
		return put(c, whole("application/json", `{"object":"list","data":[{"id":"tern-tiny","root":"/m","max_model_len":4194304}]}`))
	case "/metrics":
		return put(c, whole("text/plain", "process_start_time_seconds 1764430000.5\n"+
			`vllm:cache_config_info{block_size="16",num_gpu_blocks="4096",cache_dtype="auto",enable_prefix_caching="True"} 1`+"\n"))
	case "/v1/completions", "/v1/chat/completions":
		tail := body[max(0, len(body)-2048):]
		if bytes.Contains(tail, []byte(`"do_remote_decode":true`)) || !bytes.Contains(tail, []byte(`"stream":true`)) {
			return put(c, whole("application/json", strings.Replace(s.handoff, "%s", id, 1)))
		}
		return s.stream(c, tail)
	}
	return put(c, []byte("HTTP/1.1 404 Not Found\r\ncontent-length: 22\r\n\r\n{\"detail\":\"Not Found\"}"))
}

func put(c net.Conn, b []byte) error {
	_, err := c.Write(b)
	return err
}

// stream writes bench_frames frames: back to back, or one every bench_pace_us. bench_silent
// holds the stream open after the first.
func (s *stub) stream(c net.Conn, body []byte) error {
	n, pace := max(1, field(body, "bench_frames")), field(body, "bench_pace_us")
	out := []byte("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
	next := time.Now()
	for i := range n {
		f := s.frame
		if i == n-1 {
			f = s.last
		}
		out = fmt.Appendf(out, "%x\r\n%s\r\n", len(f), f)
		if pace > 0 || i == 0 && field(body, "bench_silent") > 0 {
			if err := put(c, out); err != nil {
				return err
			}
			out = out[:0]
		}
		if field(body, "bench_silent") > 0 {
			_, err := c.Read(make([]byte, 1))
			return err
		}
		if pace > 0 {
			next = next.Add(time.Duration(pace) * time.Microsecond)
			time.Sleep(time.Until(next))
		}
	}
	usage := fmt.Sprintf(`data: {"id":"cmpl-1","object":"text_completion","created":1764430000,"model":"tern-tiny","choices":[],"usage":{"prompt_tokens":16,"total_tokens":%d,"completion_tokens":%d}}`+"\n\n", 16+n, n)
	done := "data: [DONE]\n\n"
	out = fmt.Appendf(out, "%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", len(usage), usage, len(done), done)
	return put(c, out)
}

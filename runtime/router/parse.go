package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// call is a client's request, parsed once.
type call struct {
	chat    bool
	object  splice.Object
	body    []byte
	model   string
	named   bool // the client named a model
	stream  bool
	usage   bool // the client asked for a usage event
	ids     bool // the client asked for token ids
	wanted  int  // output cap of a sequence; 0 = uncapped
	most    int  // the larger of the two members that cap it; 0 = uncapped
	tokens  int  // exact length of a prompt given as token ids; 0 = unknown
	longest int  // of several prompts given as token ids, the longest; 0 = unknown
	runes   int  // characters of the prompt
	widest  int  // of several prompts given as text, the characters of the longest
	prompts int  // how many prompts there are
	choices int  // sequences of each prompt
	wide    int  // of which the client gets so many
	// uncounted means that a tokenize call does not take this prompt.
	uncounted bool
	several   bool     // the prompt is a list of prompts
	foreign   bool     // the prompt has parts that are no text
	templated bool     // the client brings a template, which may write anything
	size      int      // bytes of the body
	stripped  []string // members that no client may send to an engine
}

// reaching reports whether a member of a client's body reaches into the KV transfer. The
// dialects strip these from both legs: an engine may die of a forged one.
func reaching(key string) bool {
	return key == "kv_transfer_params" || key == "ec_transfer_params" || key == "vllm_xargs" || strings.HasPrefix(key, "bootstrap_")
}

// forget lets go of the body, which may be large and its stream long.
func (c *call) forget() { c.object, c.body = splice.Object{}, nil }

func (c *call) path() string {
	if c.chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// parseCall checks the fields that the router itself needs, in the contract's order. Every
// other field passes unseen.
func parseCall(chat bool, body []byte) (*call, *failure) {
	o, f := parseObject(body)
	if f != nil {
		return nil, f
	}
	c := &call{chat: chat, object: o, body: body, size: len(body), prompts: 1, choices: 1, wide: 1}
	for _, k := range o.Keys() {
		if reaching(k) {
			c.stripped = append(c.stripped, k)
		}
	}
	_, c.templated = c.get("chat_template")
	for _, check := range []func() *failure{c.head, c.prompt, c.messages, c.reserved, c.buffered} {
		if f := check(); f != nil {
			return c, f
		}
	}
	return c, nil
}

// get returns a member's value; null counts as absent.
func (c *call) get(key string) (json.RawMessage, bool) {
	v, ok := c.object.Get(key)
	if !ok || string(v) == "null" {
		return nil, false
	}
	return v, true
}

func (c *call) head() *failure {
	if v, ok := c.get("model"); ok {
		if c.model, c.named = splice.String(v); !c.named {
			return invalid("model", "model must be a string")
		}
	}
	if v, ok := c.get("stream"); ok {
		if c.stream = string(v) == "true"; !c.stream && string(v) != "false" {
			return invalid("stream", "stream must be a boolean")
		}
	}
	ints := map[string]int{}
	for _, k := range []string{"n", "best_of", "max_tokens", "max_completion_tokens"} {
		v, ok := c.get(k)
		if !ok {
			continue
		}
		n, ok := integer(v)
		if !ok {
			return invalid(k, "%s must be an integer", k)
		}
		ints[k] = n
	}
	for _, k := range []string{"n", "best_of"} {
		if ints[k] > maxWidth {
			return invalid(k, "%s must be at most %d", k, maxWidth)
		}
	}
	if f := width(ints); f != nil {
		return f
	}
	c.wide = max(1, ints["n"])
	c.choices = max(c.wide, ints["best_of"])
	c.wanted = max(0, ints["max_completion_tokens"])
	if c.wanted == 0 {
		c.wanted = max(0, ints["max_tokens"])
	}
	c.most = max(0, ints["max_completion_tokens"], ints["max_tokens"])
	if f := c.streamOptions(); f != nil {
		return f
	}
	if v, ok := c.get("return_token_ids"); ok {
		c.ids = string(v) == "true"
	}
	return nil
}

// width judges how many sequences are asked for.
func width(ints map[string]int) *failure {
	n, given := ints["n"]
	if !given {
		n = 1
	}
	if n < 1 {
		return invalid("n", "n must be at least 1")
	}
	if best, given := ints["best_of"]; given && best < n {
		return invalid("best_of", "best_of must be at least n, which is %d", n)
	}
	return nil
}

// streamOptions reads what the router answers for the engine: the legs have options of their own.
func (c *call) streamOptions() *failure {
	v, ok := c.get("stream_options")
	if !ok {
		return nil
	}
	if v[0] != '{' {
		return invalid("stream_options", "stream_options must be an object")
	}
	o := splice.View(v)
	for _, k := range []string{"include_usage", "continuous_usage_stats"} {
		if v, ok := o.Get(k); ok && string(v) != "true" && string(v) != "false" && string(v) != "null" {
			return invalid("stream_options", "stream_options.%s must be a boolean", k)
		}
	}
	include, _ := o.Get("include_usage")
	c.usage = string(include) == "true"
	return nil
}

// integer reads a JSON integer; a number with a fraction, an exponent or a boolean is none.
func integer(v json.RawMessage) (int, bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		// Beyond 64 bits it is an integer all the same.
		if errors.Is(err, strconv.ErrRange) {
			return map[bool]int{true: math.MinInt32, false: math.MaxInt32}[v[0] == '-'], true
		}
		return 0, false
	}
	return int(max(math.MinInt32, min(n, math.MaxInt32))), true
}

// legs is the client's object as both legs start from it: with the model named.
func (c *call) legs(modelName string) splice.Object {
	if c.named {
		return c.object
	}
	return c.object.With(splice.Set{Key: "model", Value: quote(modelName)})
}

// streamed asks for a stream with exact usage at its end, whatever the client asked for.
func (c *call) streamed(o splice.Object) splice.Object {
	set := []splice.Set{{Key: "stream", Value: json.RawMessage("true")}, {Key: "stream_interval", Value: json.RawMessage("1")}}
	if !c.stream || !c.usage {
		set = append(set, splice.Set{Key: "stream_options", Value: json.RawMessage(`{"include_usage":true}`)})
	}
	return o.With(set...)
}

func quote(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return json.RawMessage(`""`)
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

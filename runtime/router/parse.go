package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
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

// promptField is the member that holds the prompt.
func (c *call) promptField() string {
	if c.chat {
		return "messages"
	}
	return "prompt"
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

func (c *call) prompt() *failure {
	v, ok := c.get("prompt")
	if !ok {
		return nil
	}
	switch v[0] {
	case '"':
		if !c.chat {
			c.runes = splice.Runes(v)
		}
		return nil
	case '[':
		if !c.chat {
			c.listed(v)
		}
		return nil
	}
	return invalid("prompt", "prompt must be a string or an array")
}

// only takes the one prompt of a list in the list's place, which asks for the same: a list is
// not split. It is false for what is no prompt, whose refusal is the engine's.
func (c *call) only(p json.RawMessage) bool {
	if n, ints, ok := splice.Count(p); ok && n > 0 && n == ints {
		c.tokens, c.longest = n, n
	} else if p[0] == '"' {
		c.runes = splice.Runes(p)
	} else {
		return false
	}
	c.object = c.object.With(splice.Set{Key: "prompt", Value: p})
	return true
}

// listed sizes a prompt that is an array: token ids, or several prompts of either form.
func (c *call) listed(v json.RawMessage) {
	n, ints, _ := splice.Count(v)
	if n == ints {
		c.tokens, c.longest = n, n
		return
	}
	prompts, _ := splice.Elements(v, n)
	if len(prompts) == 1 && c.only(prompts[0]) {
		return
	}
	c.several = true
	c.prompts = max(1, len(prompts))
	c.uncounted = true
	for _, p := range prompts {
		if p[0] == '"' {
			n := splice.Runes(p)
			c.runes += n
			c.widest = max(c.widest, n)
			continue
		}
		ids, ints, ok := splice.Count(p)
		if !ok || ids != ints {
			c.tokens, c.longest = 0, 0
			return
		}
		c.tokens += ids
		c.longest = max(c.longest, ids)
	}
	c.uncounted = c.tokens == 0
}

// maxWidth is the most sequences of one prompt, as the public API has it.
const maxWidth = 128

// maxMessages of one conversation.
const maxMessages = 1 << 20

func (c *call) messages() *failure {
	v, ok := c.get("messages")
	if !ok {
		return nil
	}
	items, ok := splice.Elements(v, maxMessages)
	if !ok {
		return invalid("messages", "messages must be an array")
	}
	for _, m := range items {
		if m[0] != '{' {
			return invalid("messages", "every item in messages must be an object")
		}
		if c.chat {
			c.content(m)
		}
	}
	return nil
}

// content counts the text of a message: a string, or the text of its parts.
func (c *call) content(message []byte) {
	v, ok := splice.View(message).Get("content")
	if !ok {
		return
	}
	if v[0] == '"' {
		c.runes += splice.Runes(v)
		return
	}
	parts, _ := splice.Elements(v, maxMessages)
	for _, p := range parts {
		if t, ok := splice.View(p).Get("text"); ok && t[0] == '"' {
			c.runes += splice.Runes(t)
		} else {
			c.foreign = true
		}
	}
}

// reserved refuses what would reach into the KV transfer.
func (c *call) reserved() *failure {
	v, ok := c.get("vllm_xargs")
	if !ok {
		return nil
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(v, &args) != nil {
		return nil
	}
	for _, k := range []string{"kv_cache_report_mode", "kv_transfer_params", "ec_transfer_params"} {
		if _, ok := args[k]; ok {
			return invalid("vllm_xargs", "vllm_xargs.%s is reserved for Narwhal", k)
		}
	}
	return nil
}

// reservedBy refuses what one dialect keeps for the router, what it cannot stream, and what its
// engines refuse although the legs would hide it from them.
func (c *call) reservedBy(dialect string) *failure {
	if dialect != sglang.Name {
		if _, ok := c.get("stream_options"); ok && !c.stream {
			return invalid("stream_options", "stream_options is for streams: it must be left out unless stream is true")
		}
		return nil
	}
	for _, k := range []string{"rid", "bootstrap_host", "bootstrap_port", "bootstrap_room"} {
		if _, ok := c.get(k); ok {
			return invalid(k, "%s is reserved for Narwhal", k)
		}
	}
	for _, k := range []string{"return_token_ids", "return_prompt_token_ids", "return_meta_info"} {
		if v, ok := c.get(k); ok && c.chat && string(v) != "false" {
			return invalid(k, "%s is not served for chat by this backend", k)
		}
	}
	return nil
}

// buffered refuses what cannot be put together from a stream.
func (c *call) buffered() *failure {
	if c.stream {
		return nil
	}
	if _, ok := c.get("audio"); ok {
		return invalid("audio", "non-streaming audio output is not supported")
	}
	if v, ok := c.get("modalities"); ok {
		var m []string
		if json.Unmarshal(v, &m) != nil || len(m) != 1 || m[0] != "text" {
			return invalid("modalities", `non-streaming modalities must be ["text"]`)
		}
	}
	v, ok := c.get("tools")
	if !ok {
		return nil
	}
	var tools []json.RawMessage
	if json.Unmarshal(v, &tools) != nil {
		return invalid("tools", "non-streaming tools must be a list of objects")
	}
	for _, raw := range tools {
		var t struct {
			Type *string `json:"type"`
		}
		if !bytes.HasPrefix(raw, []byte("{")) || json.Unmarshal(raw, &t) != nil {
			return invalid("tools", "non-streaming tools must be a list of objects")
		}
		if t.Type != nil && *t.Type != "function" {
			return invalid("tools", "non-streaming tools must have type function")
		}
	}
	return nil
}

// served checks what only this router can judge: its model.
func (c *call) served(modelName string) *failure {
	if c.named && c.model != modelName {
		f := invalid("model", "model %s is not served here; this router serves %s", quote(c.model), quote(modelName))
		f.status, f.code = 404, ptr("model_not_found")
		return f
	}
	return nil
}

// estimate is the prompt's length in tokens when nobody counted it.
func (c *call) estimate(charsPerToken float64) int {
	if c.tokens > 0 {
		return c.tokens
	}
	return max(1, int(float64(c.runes)/charsPerToken))
}

// sequences is how many answers the engine makes.
func (c *call) sequences() int { return c.choices * c.prompts }

// answers is how many choices the client gets: of best_of only the n best are.
func (c *call) answers() int { return c.wide * c.prompts }

// largest is the length of the longest prompt, as estimate has it.
func (c *call) largest(charsPerToken float64) int {
	if !c.several {
		return c.estimate(charsPerToken)
	}
	return max(c.longest, int(float64(c.widest)/charsPerToken))
}

// countBody is the body of a tokenize call, or nil when the count is already known.
func (c *call) countBody(modelName string) []byte {
	if c.tokens > 0 || c.uncounted {
		return nil
	}
	keys := []string{"prompt", "add_special_tokens"}
	if c.chat {
		keys = []string{"messages", "tools", "chat_template", "chat_template_kwargs", "continue_final_message", "add_generation_prompt", "add_special_tokens"}
	}
	var empty splice.Object
	set := []splice.Set{{Key: "model", Value: quote(modelName)}}
	for _, k := range keys {
		if v, ok := c.get(k); ok {
			set = append(set, splice.Set{Key: k, Value: v})
		}
	}
	return empty.Edit(nil, set...)
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

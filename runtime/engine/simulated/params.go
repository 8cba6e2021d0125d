package simulated

import (
	"strconv"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"
)

const maxLogprobs = 20

// params is a validated request.
type params struct {
	chat         bool
	prompts      [][]int32
	n            int
	maxTokens    int
	unlimited    bool // no token limit asked for
	minTokens    int
	temperature  float64
	topP         float64
	seed         uint64
	stream       bool
	includeUsage bool
	continuous   bool
	stops        []string
	hold         int // bytes to hold back for the longest stop string
	stopIDs      []int32
	logprobs     int // alternatives a token, -1 = none asked
	echo         bool
	returnIDs    bool
	ignoreEOS    bool
	salt         string
	transfer     transfer
	id           string   // of a body that carries one
	meet         *meeting // where the two legs meet; nil for a whole request
	prefills     bool     // this is the leg that prefills
}

// readParams applies the checks in the order of the real engine: schema, options, model,
// sampling, prompt. The transfer part is returned even with a refusal of the serving layer,
// because the engine then tells the producer; a refusal of the schema returns none.
func (s *Server) readParams(f *fields, chat bool) (*params, *refusal) {
	p := &params{chat: chat, n: 1, logprobs: -1}
	model := f.string("model")
	prompt, limit, truncate := s.readSchema(f, p)
	if f.err != nil {
		return &params{}, f.err
	}
	if s.sgl() {
		return p, s.checkSGLang(f, p, prompt, limit, truncate)
	}
	if r := s.checkOptions(f, p, prompt); r != nil {
		return p, r
	}
	if model != "" && model != s.cfg.Model {
		return p, &refusal{404, "NotFoundError", "The model `" + model + "` is not served. Valid aliases: " + s.cfg.Model + ".", "model"}
	}
	if r := checkSampling(f, p, limit); r != nil {
		return p, r
	}
	if r := prompt.encode(p, truncate); r != nil {
		return p, r
	}
	return p, s.clamp(p, limit)
}

// tokenLimit is the limit as asked for; set tells 0 from absent.
type tokenLimit struct {
	n   int
	set bool
}

func (s *Server) readSchema(f *fields, p *params) (prompt promptInput, limit tokenLimit, truncate int) {
	p.stream, p.echo = f.bool("stream"), f.bool("echo")
	p.returnIDs, p.ignoreEOS = f.bool("return_token_ids"), f.bool("ignore_eos")
	p.temperature = f.float("temperature", 1)
	p.topP = f.float("top_p", 1)
	p.salt = f.string("cache_salt")
	limit.n, limit.set = f.int("max_tokens")
	if p.chat {
		if n, ok := f.int("max_completion_tokens"); ok {
			limit = tokenLimit{n, true}
		}
	}
	p.minTokens, _ = f.int("min_tokens")
	if n, ok := f.int("n"); ok {
		p.n = n
	}
	seed, _ := f.int("seed")
	p.seed = uint64(seed)
	for _, s := range list[string](f, "stop", "a string or a list of strings") {
		if s != "" {
			p.stops = append(p.stops, s)
		}
	}
	p.hold = holdBack(p.stops)
	p.stopIDs = list[int32](f, "stop_token_ids", "a list of integers")
	p.readLogprobs(f)
	truncate, _ = f.int("truncate_prompt_tokens")
	f.object("stream_options")
	f.object("logit_bias")
	if s.sgl() {
		p.id = f.string("rid")
	} else {
		p.transfer = s.readTransfer(f)
	}
	if p.chat {
		prompt = readMessages(f)
	} else {
		prompt = readPrompt(f)
	}
	return prompt, limit, truncate
}

func (p *params) readLogprobs(f *fields) {
	if !p.chat {
		if n, ok := f.int("logprobs"); ok {
			p.logprobs = n
		}
		return
	}
	if f.bool("logprobs") {
		p.logprobs, _ = f.int("top_logprobs")
	}
}

func (s *Server) checkOptions(f *fields, p *params, prompt promptInput) *refusal {
	if o, ok := f.object("stream_options"); ok {
		if !p.stream {
			return badRequest("stream_options", "stream options need stream=true")
		}
		p.includeUsage, p.continuous = o.bool("include_usage"), o.bool("continuous_usage_stats")
	}
	if _, ok := f.get("prompt_logprobs"); ok && p.stream {
		return badRequest("prompt_logprobs", "prompt_logprobs are not available with stream=true")
	}
	return prompt.present()
}

func checkSampling(f *fields, p *params, limit tokenLimit) *refusal {
	switch {
	case p.n < 1:
		return badRequest("", "n must be at least 1, got %d", p.n)
	case p.n*max(1, len(p.prompts)) > maxSequences:
		return badRequest("", "n must be at most %d, got %d", maxSequences, p.n)
	case p.temperature < 0:
		return badRequest("temperature", "temperature must not be negative, got %v", p.temperature)
	case p.topP <= 0 || p.topP > 1:
		return badRequest("top_p", "top_p must be in (0, 1], got %v", p.topP)
	case p.n > 1 && p.temperature == 0:
		return badRequest("", "n must be 1 with greedy sampling, got %d", p.n)
	case limit.set && limit.n < 1:
		return badRequest("max_tokens", "max_tokens must be at least 1, got %d", limit.n)
	case p.minTokens < 0:
		return badRequest("min_tokens", "min_tokens must not be negative, got %d", p.minTokens)
	case limit.set && p.minTokens > limit.n:
		return badRequest("", "min_tokens must not exceed max_tokens=%d, got %d", limit.n, p.minTokens)
	case p.logprobs > maxLogprobs:
		return badRequest("logprobs", "logprobs of %d exceed the most allowed, %d", p.logprobs, maxLogprobs)
	}
	if bias, ok := f.object("logit_bias"); ok {
		for _, k := range bias.o.Keys() {
			if _, err := strconv.Atoi(k); err != nil {
				return badRequest("logit_bias", "logit_bias has a key that is no token id")
			}
		}
	}
	return nil
}

// defaultCompletionTokens is the limit of a completion that names none.
const defaultCompletionTokens = 16

// clamp refuses prompts that leave no room and cuts the limit to the context.
func (s *Server) clamp(p *params, limit tokenLimit) *refusal {
	longest := 0
	for _, ids := range p.prompts {
		longest = max(longest, len(ids))
	}
	room := s.cfg.MaxModelLen - longest
	switch {
	case longest == 0:
		return badRequest("prompt", "the prompt is empty")
	case room < 0:
		return badRequest("input_tokens", "the context length is %d tokens, the prompt has %d (parameter=input_tokens)", s.cfg.MaxModelLen, longest)
	case room == 0:
		return badRequest("max_tokens", "max_tokens must be at least 1, got 0")
	}
	p.maxTokens = room
	switch {
	case limit.set:
		p.maxTokens = min(limit.n, room)
	case !p.chat:
		p.maxTokens = min(defaultCompletionTokens, room)
	default:
		p.unlimited = true
	}
	if p.ignoreEOS {
		p.unlimited = false
	}
	return nil
}

func checkIDs(ids []int64) ([]int32, *refusal) {
	out := make([]int32, len(ids))
	for i, id := range ids {
		if !token.Valid(id) {
			return nil, badRequest("", "token id %d is out of vocabulary", id)
		}
		out[i] = int32(id)
	}
	return out, nil
}

// maxSequences of one request, as in a real engine.
const maxSequences = 16384

package simulated

import "strconv"

// checkSGLang has the checks of that dialect: fewer than vLLM's, and a limit beyond the context
// is refused instead of cut.
func (s *Server) checkSGLang(f *fields, p *params, prompt promptInput, limit tokenLimit, truncate int) *refusal {
	if o, ok := f.object("stream_options"); ok && p.stream {
		p.includeUsage, p.continuous = o.bool("include_usage"), o.bool("continuous_usage_stats")
	}
	prompt.tools = nil // no parser is needed to refuse or to use them
	if r := prompt.present(); r != nil {
		return r
	}
	switch {
	case p.n < 1:
		return badRequest("", "n must be at least 1, got %d", p.n)
	case p.temperature < 0:
		return badRequest("", "temperature must not be negative, got %v", p.temperature)
	case p.topP <= 0 || p.topP > 1:
		return badRequest("", "top_p must be in (0, 1], got %v", p.topP)
	case limit.set && limit.n < 1:
		return badRequest("", "max_new_tokens must be at least 1, got %d", limit.n)
	case p.minTokens < 0 || (limit.set && p.minTokens > limit.n):
		return badRequest("", "min_new_tokens must be in [0, %d], got %d", limit.n, p.minTokens)
	}
	if r := prompt.encode(p, truncate); r != nil {
		return r
	}
	if r := s.fit(p, limit); r != nil {
		return r
	}
	return s.readRoom(f, p)
}

// fit refuses what does not fit the context.
func (s *Server) fit(p *params, limit tokenLimit) *refusal {
	longest := 0
	for _, ids := range p.prompts {
		longest = max(longest, len(ids))
	}
	switch {
	case longest == 0:
		return badRequest("", "the prompt is empty")
	case longest >= s.cfg.MaxModelLen:
		return badRequest("", "the input of %d tokens is longer than the context of %d", longest, s.cfg.MaxModelLen)
	case limit.set && longest+limit.n > s.cfg.MaxModelLen:
		return badRequest("", "%d tokens and %d asked for exceed the context of %d", longest, limit.n, s.cfg.MaxModelLen)
	}
	return s.clamp(p, limit)
}

// uint reads a whole number of up to 64 bits, which a float would not hold.
func (f *fields) uint(key string) (uint64, bool) {
	v, ok := f.get(key)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil || n>>63 != 0 {
		f.fail(key, "an integer in [0, 2^63)")
		return 0, false
	}
	return n, true
}

package simulated

import (
	"net/http"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"
)

// answer is one finished choice.
type answer struct {
	items []item
	end   item
}

// buffer collects all lanes and answers in one piece.
func (c *call) buffer(w http.ResponseWriter) error {
	answers := make([]answer, len(c.lanes))
	for open := len(c.lanes); open > 0; {
		items, err := c.take()
		if err != nil {
			return err
		}
		for _, it := range items {
			a := &answers[it.lane.index]
			if it.token {
				it.lane.count++
				a.items = append(a.items, it)
			}
			if it.done {
				a.end = it
				open--
			}
			if it.err != nil {
				c.srv.refusalOf(it.err).write(w)
				return nil
			}
		}
		if c.fault.due(c.answerTokens() - 1) {
			return c.failBuffered(w)
		}
	}
	body := c.appendAnswer(nil, answers)
	sh := c.srv.shape()
	if !sh.trickle && !sh.splitRune {
		writeJSON(w, http.StatusOK, body)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	out := &writer{w: w, rc: http.NewResponseController(w), shape: sh, buf: body}
	return out.send()
}

func (c *call) failBuffered(w http.ResponseWriter) error {
	switch c.fault.kind {
	case faultStall:
		<-c.ctx.Done()
		return c.ctx.Err()
	case faultEOF, faultReset:
		return http.ErrAbortHandler
	}
	c.srv.refusalOf(core.ErrLoad).write(w)
	return nil
}

func (c *call) appendAnswer(b []byte, answers []answer) []byte {
	if c.srv.sgl() {
		return c.sglAnswer(b, answers)
	}
	b = append(b, `{"id":`...)
	b = appendString(b, c.id)
	if c.p.chat {
		b = append(b, `,"object":"chat.completion","created":`...)
	} else {
		b = append(b, `,"object":"text_completion","created":`...)
	}
	b = appendInt(b, c.created)
	b = append(b, `,"model":`...)
	b = appendString(b, c.srv.cfg.Model)
	b = append(b, `,"choices":[`...)
	for i, a := range answers {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.appendChoice(b, c.lanes[i], a)
	}
	b = append(b, `],"service_tier":null,"system_fingerprint":`...)
	b = appendString(b, c.srv.print)
	b = append(b, `,"usage":`...)
	b = c.appendUsage(b, usageWhole)
	if c.p.chat {
		b = append(b, `,"prompt_logprobs":null,"prompt_token_ids":`...)
		b = appendIDs(b, c.p.returnIDs, c.p.prompts[0])
		b = append(b, `,"prompt_text":null`...)
	}
	b = append(b, `,"kv_transfer_params":`...)
	b = append(b, c.handoff(answers)...)
	return append(b, `,"ec_transfer_params":null,"metrics":null}`...)
}

func (c *call) appendChoice(b []byte, l *lane, a answer) []byte {
	text := ""
	if c.p.echo && !c.p.chat {
		text = token.Text(l.seq.Prompt)
	}
	for _, it := range a.items {
		text += it.text
	}
	b = append(b, `{"index":`...)
	b = appendInt(b, int64(l.index))
	if c.p.chat {
		b = append(b, `,"message":{"role":"assistant","content":`...)
		b = appendString(b, text)
		b = append(b, `,"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}`...)
	} else {
		b = append(b, `,"text":`...)
		b = appendString(b, text)
	}
	b = append(b, `,"logprobs":`...)
	b = c.appendLogprobs(b, l, a.items)
	b = c.appendFinish(b, append(a.items, a.end))
	b = append(b, `,"token_ids":`...)
	b = c.appendItemIDs(b, a.items)
	if !c.p.chat {
		b = append(b, `,"prompt_logprobs":null,"prompt_token_ids":`...)
		b = appendIDs(b, c.p.returnIDs, l.seq.Prompt)
	}
	return append(b, `,"routed_experts":null}`...)
}

// handoff is that of prompt 0's last choice, as the real engine returns it; the blocks of the
// others stay pinned for a lease.
func (c *call) handoff(answers []answer) []byte {
	var pin *core.Pin
	for _, a := range answers[:c.p.n] {
		if a.end.pin != nil {
			pin = a.end.pin
		}
	}
	if pin == nil {
		return []byte("null")
	}
	return c.srv.spoil(c.srv.handoff(pin))
}

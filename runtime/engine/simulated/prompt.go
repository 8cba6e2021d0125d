package simulated

import (
	"encoding/json"
	"strconv"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"
)

// promptInput is a prompt in one of its forms, not yet encoded.
type promptInput struct {
	texts    []string
	ids      [][]int64
	chat     bool
	messages []message
	tools    json.RawMessage
	choice   json.RawMessage
	given    bool
}

type message struct {
	role, content string
}

func readPrompt(f *fields) promptInput {
	v, ok := f.get("prompt")
	p := promptInput{given: ok}
	if !ok {
		return p
	}
	var (
		text  string
		texts []string
		ids   []int64
		lists [][]int64
	)
	switch {
	case json.Unmarshal(v, &text) == nil:
		p.texts = []string{text}
	case json.Unmarshal(v, &ids) == nil:
		p.ids = [][]int64{ids}
	case json.Unmarshal(v, &texts) == nil:
		p.texts = texts
	case json.Unmarshal(v, &lists) == nil:
		p.ids = lists
	default:
		f.fail("prompt", "a string, token ids, or a list of either")
	}
	for _, l := range p.ids {
		for i, id := range l {
			if id < 0 {
				f.fail("prompt."+strconv.Itoa(i), "a token id of at least 0")
			}
		}
	}
	return p
}

func readMessages(f *fields) promptInput {
	p := promptInput{chat: true}
	raw, ok := f.get("messages")
	if !ok {
		f.fail("messages", "a list of messages")
		return p
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		f.fail("messages", "a list of messages")
		return p
	}
	for i, m := range list {
		var w struct {
			Role    *string         `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		text, ok := "", false
		if json.Unmarshal(m, &w) == nil && w.Role != nil {
			text, ok = contentText(w.Content)
		}
		if !ok {
			f.fail("messages."+strconv.Itoa(i), "a message with role and content")
			return p
		}
		p.messages = append(p.messages, message{*w.Role, text})
	}
	p.given = true
	p.tools, _ = f.get("tools")
	p.choice, _ = f.get("tool_choice")
	return p
}

// contentText reads a string, null, or a list of text parts.
func contentText(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", true
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, true
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", false
	}
	for _, p := range parts {
		s += p.Text
	}
	return s, true
}

// present refuses what the schema lets through and the serving layer cannot use.
func (in promptInput) present() *refusal {
	if !in.chat {
		if !in.given || (len(in.texts) == 0 && len(in.ids) == 0) || (len(in.texts) == 1 && in.texts[0] == "") {
			return badRequest("prompt", "a prompt must be given and not empty")
		}
		return nil
	}
	if len(in.messages) == 0 {
		return badRequest("", "a conversation needs at least one message")
	}
	if len(in.tools) == 0 || string(in.tools) == "[]" || string(in.tools) == "null" {
		return nil
	}
	switch choice := string(in.choice); {
	case choice == `"none"`:
		return nil
	case choice == "" || choice == `"auto"`:
		return badRequest("", "auto tool choice needs --enable-auto-tool-choice and --tool-call-parser")
	default:
		return badRequest("", "this tool choice needs --tool-call-parser")
	}
}

func (in promptInput) encode(p *params, truncate int) *refusal {
	if in.chat {
		p.prompts = [][]int32{in.template(true)}
	}
	for _, t := range in.texts {
		p.prompts = append(p.prompts, token.IDs(t))
	}
	for _, l := range in.ids {
		ids, r := checkIDs(l)
		if r != nil {
			return r
		}
		p.prompts = append(p.prompts, ids)
	}
	for i, ids := range p.prompts {
		if truncate > 0 && len(ids) > truncate {
			p.prompts[i] = ids[len(ids)-truncate:]
		}
	}
	return nil
}

// template is the chat form: tools and messages in turns, then the mark of the answer.
func (in promptInput) template(answer bool) []int32 {
	var ids []int32
	turn := func(role, content string) {
		ids = append(ids, token.Turn)
		ids = token.Append(ids, role)
		ids = append(ids, '\n')
		ids = token.Append(ids, content)
		ids = append(ids, token.End)
	}
	if len(in.tools) > 0 {
		turn("tools", string(in.tools))
	}
	for _, m := range in.messages {
		turn(m.role, m.content)
	}
	if answer {
		ids = append(ids, token.Answer)
	}
	return ids
}

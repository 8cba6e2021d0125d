package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrTooLarge says that an event or an object is above its limit. Nothing was written.
var ErrTooLarge = errors.New("too large")

const (
	sumMark = `,"sum":"`
	sumTail = len(sumMark) + 64 + len(`"}`)
)

// digestOf is the lower-case hex SHA-256.
func digestOf(b []byte) string {
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// newEvent validates a body against its kind and makes the event without its place in the chain.
func newEvent(kind Kind, gate, step, host string, body any, now time.Time) (Event, error) {
	raw, err := marshal(body)
	if err != nil {
		return Event{}, fmt.Errorf("encode body of %s: %w", kind, err)
	}
	if body == nil {
		raw = []byte("{}")
	}
	if _, err := decodeBody(kind, raw, true); err != nil {
		return Event{}, err
	}
	clean := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	return Event{
		Time: now.UTC().Round(0), Kind: kind, Body: raw,
		Gate: clean(gate), Step: clean(step), Host: clean(host),
	}, nil
}

// encodeLine is the one text form of an event, without the newline.
func encodeLine(ev Event) ([]byte, error) {
	b, err := marshal(ev)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", ev.Kind, err)
	}
	head := b[:len(b)-1]
	line := append(head[:len(head):len(head)], sumMark+digestOf(head)+`"}`...)
	if len(line) > MaxLine {
		return nil, fmt.Errorf("encode %s: %d bytes in one line, limit %d: %w", ev.Kind, len(line), MaxLine, ErrTooLarge)
	}
	return line, nil
}

// decodeLine reads a line in exactly the form that encodeLine writes.
func decodeLine(line []byte) (Event, error) {
	if len(line) > MaxLine {
		return Event{}, fmt.Errorf("read line: longer than %d bytes", MaxLine)
	}
	cut := len(line) - sumTail
	if cut < 1 || !bytes.HasPrefix(line[cut:], []byte(sumMark)) || !bytes.HasSuffix(line, []byte(`"}`)) {
		return Event{}, errors.New("read line: it does not end in its sum")
	}
	if sum := string(line[cut+len(sumMark) : len(line)-2]); sum != digestOf(line[:cut]) {
		return Event{}, errors.New("read line: its bytes do not match its sum")
	}
	var ev Event
	head := append(line[:cut:cut], '}')
	dec := json.NewDecoder(bytes.NewReader(head))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&ev); err != nil {
		return Event{}, fmt.Errorf("read line: %w", err)
	}
	if again, err := marshal(ev); err != nil || !bytes.Equal(again, head) {
		return Event{}, errors.New("read line: not in canonical form")
	}
	if _, err := decodeBody(ev.Kind, ev.Body, false); err != nil {
		return Event{}, err
	}
	return ev, nil
}

// link is the head of a chain: the last good line.
type link struct {
	seq    int64
	digest string
}

func genesis() link { return link{digest: zeroDigest} }

// follow checks that ev comes right after the link.
func (l link) follow(ev Event) error {
	switch {
	case ev.Seq != l.seq+1:
		return fmt.Errorf("seq is %d, want %d", ev.Seq, l.seq+1)
	case ev.Prev != l.digest:
		return fmt.Errorf("prev is %s, the line before has %s", clip(ev.Prev), l.digest)
	case (ev.Kind == KindCreated) != (ev.Seq == 1):
		return fmt.Errorf("%s at seq %d: a record starts with one %s", ev.Kind, ev.Seq, KindCreated)
	}
	return nil
}

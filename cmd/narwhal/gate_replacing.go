package main

import (
	"fmt"
	"io"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// replacementStatus is a replacement that is not finished.
type replacementStatus struct {
	Started time.Time         `json:"started"`
	Wave    bool              `json:"wave"`
	Back    int64             `json:"back,omitempty"` // line that began what is taken back
	Engines []replacingStatus `json:"engines"`
}

// replacingStatus is how far one engine is: the newest stage, "" before the first.
type replacingStatus struct {
	Engine string `json:"engine"`
	Stage  string `json:"stage"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

func replacementOf(state record.State) *replacementStatus {
	b := state.Replacement
	if b == nil {
		return nil
	}
	out := &replacementStatus{Started: b.Time, Wave: b.Wave, Engines: []replacingStatus{}}
	if b.Back != nil {
		out.Back = b.Back.Of
	}
	for _, e := range b.Engines {
		s, _ := b.Last(e, "")
		out.Engines = append(out.Engines, replacingStatus{e, clean(s.Stage), clean(s.Status), clean(s.Error)})
	}
	return out
}

func (r *replacementStatus) print(w io.Writer) {
	if r == nil {
		return
	}
	if r.Back > 0 {
		fmt.Fprintf(w, "it takes back the replacement that line %d of the record began\n", r.Back)
	}
	fmt.Fprintf(w, "a replacement began at %s and is not finished; narwhal gate replace goes on\n", r.Started.Local().Format("15:04:05"))
	for _, e := range r.Engines {
		switch {
		case e.Stage == "":
			fmt.Fprintf(w, "  %s waits and serves\n", clean(e.Engine))
		case e.Stage == "back" && e.Status == record.ReplaceOK:
			fmt.Fprintf(w, "  %s is replaced and serves\n", clean(e.Engine))
		default:
			fmt.Fprintf(w, "  %s is out of service, stage %s %s", clean(e.Engine), e.Stage, e.Status)
			if e.Error != "" {
				fmt.Fprintf(w, ": %s", oneLine(e.Error))
			}
			fmt.Fprintln(w)
		}
	}
}

package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

const root = "../.."

func fresh(t *testing.T) *evaluation {
	t.Helper()
	return &evaluation{ctx: t.Context(), root: root, pictures: map[string][]byte{}, say: func(string) {}}
}

// Some sections, written anew, stand in the page as they are; the whole of it takes minutes.
func TestPageIsWhatTheGeneratorWrites(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "evaluation.md"))
	if err != nil {
		t.Fatalf("%v; run make sim", err)
	}
	if !strings.HasPrefix(string(page), intro) {
		t.Error("the page begins otherwise; run make sim")
	}
	e := fresh(t)
	for _, name := range []string{"even-below", "even-above", "azure-x4"} {
		text, err := e.workload(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), text) {
			t.Errorf("the section %s differs; run make sim. Now it is:\n%s", name, text)
		}
	}
	if text, err := e.published(); err != nil || !strings.Contains(string(page), text) {
		t.Errorf("the section on what is published differs; run make sim (%v). Now it is:\n%s", err, text)
	}
	for name, want := range e.pictures {
		got, err := os.ReadFile(filepath.Join(root, "docs", "evaluation", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("picture %s differs; run make sim (%v)", name, err)
		}
	}
}

// The fleet's capacity by hand: a prompt of 1 s, and ten tokens at 0.1 s a step of two.
func TestWorkByHand(t *testing.T) {
	m := simulate.Model{Engines: 2, Prefill: simulate.Prefill{C: 1}, Decode: simulate.Decode{R: 0.05}, MaxRunning: 2, KVTokens: 1000}
	if got := work(m, 0.2, []simulate.Arrival{{Input: 10, Output: 10}}); math.Abs(got-1.5) > 1e-9 {
		t.Errorf("%v engine seconds, want 1.5", got)
	}
}

func TestWaveTakesTurns(t *testing.T) {
	for _, a := range wave(10, 40) {
		first := math.Mod(a.At, 10) < 5
		if (a.Class == "chat") != first {
			t.Fatalf("%s at %v", a.Class, a.At)
		}
	}
}

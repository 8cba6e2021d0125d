// Package token is the simulated engine's tokenizer.
//
// It promises that Text(IDs(s)) is s for every string, that ordinary lower-case text takes
// about one token for four characters, and that the ids of a text never change. It refuses
// to resemble a real model's vocabulary.
//
// Ids: 0–255 are bytes, then a few marks, then 64 symbols of several bytes, then every group
// of four, three and two letters of a thirty-letter alphabet. A run of such letters is cut
// into fours from its left; every other byte is one token.
package token

import (
	"strings"
	"unicode/utf8"
)

var _ = [1]int{}[len(alphabet)-base] // the alphabet has base letters

// Marks of the chat template and the end of an answer.
const (
	EOS int32 = 256 + iota
	Turn
	End
	Answer
)

const (
	alphabet = "abcdefghijklmnopqrstuvwxyz .,\n"
	base     = 30

	symbolBase = 320
	symbolEnd  = symbolBase + 64
	pairBase   = 1024
	tripleBase = pairBase + base*base
	quadBase   = tripleBase + base*base*base
	// Size of the vocabulary: ids are below it.
	Size = quadBase + base*base*base*base
)

var marks = map[int32]string{EOS: "", Turn: "<|turn|>", End: "<|end|>", Answer: "<|answer|>"}

var symbols = []rune("äöüßéèêëàâçñøåæœïîôûùÿžščćđłńśźżğışőűабвгдежзийклмнопрсту€→…🐋🌊")

var (
	digit    [256]int8 // index in the alphabet, -1 outside
	ofSymbol = map[rune]int32{}
	words    [4096]int32
)

func init() {
	for i := range digit {
		digit[i] = int8(strings.IndexByte(alphabet, byte(i)))
	}
	for i, r := range symbols {
		if i < symbolEnd-symbolBase {
			ofSymbol[r] = int32(symbolBase + i)
		}
	}
	fillWords()
}

// fillWords chooses the ids that answers are made of: a blank or a letter, then a syllable.
func fillWords() {
	const consonants, vowels = "bcdfgklmnprstvzw", "aeio"
	for i := range words {
		first := byte(' ')
		if i&1 == 1 {
			first = vowels[i>>10&3]
		}
		s := []byte{first, consonants[i>>1&15], vowels[i>>5&3], consonants[i>>7&15]}
		words[i] = group(s)
	}
}

// Word maps a random value to an id of four printable letters.
func Word(v uint64) int32 { return words[v%uint64(len(words))] }

// Symbol maps a random value to an id whose text takes more than one byte.
func Symbol(v uint64) int32 {
	return symbolBase + int32(v%uint64(min(len(symbols), symbolEnd-symbolBase)))
}

func group(s []byte) int32 {
	n := 0
	for _, c := range s {
		n = n*base + int(digit[c])
	}
	switch len(s) {
	case 4:
		return int32(quadBase + n)
	case 3:
		return int32(tripleBase + n)
	}
	return int32(pairBase + n)
}

// IDs returns the tokens of a text, whatever its bytes.
func IDs(s string) []int32 { return Append(make([]int32, 0, len(s)/3+1), s) }

// Append adds the tokens of a text to ids.
func Append(ids []int32, s string) []int32 {
	for i := 0; i < len(s); {
		n := 0
		for n < 4 && i+n < len(s) && digit[s[i+n]] >= 0 {
			n++
		}
		if n >= 2 {
			ids = append(ids, group([]byte(s[i:i+n])))
			i += n
			continue
		}
		if s[i] >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if id, ok := ofSymbol[r]; ok {
				ids = append(ids, id)
				i += size
				continue
			}
		}
		ids = append(ids, int32(s[i]))
		i++
	}
	return ids
}

// Valid reports whether id is in the vocabulary.
func Valid(id int64) bool { return id >= 0 && id < Size }

// Text is the inverse of IDs. Marks have their names, the end of an answer has none.
func Text(ids []int32) string {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = AppendText(b, id)
	}
	return string(b)
}

// AppendText adds one token's text. An id outside the vocabulary has none.
func AppendText(b []byte, id int32) []byte {
	switch {
	case id < 0 || id >= Size:
		return b
	case id < 256:
		return append(b, byte(id))
	case id < symbolBase:
		return append(b, marks[id]...)
	case id < symbolEnd:
		if i := int(id - symbolBase); i < len(symbols) {
			return utf8.AppendRune(b, symbols[i])
		}
		return b
	case id < pairBase:
		return b
	case id < tripleBase:
		return letters(b, int(id-pairBase), 2)
	case id < quadBase:
		return letters(b, int(id-tripleBase), 3)
	}
	return letters(b, int(id-quadBase), 4)
}

func letters(b []byte, n, count int) []byte {
	var s [4]byte
	for i := count - 1; i >= 0; i-- {
		s[i] = alphabet[n%base]
		n /= base
	}
	return append(b, s[:count]...)
}

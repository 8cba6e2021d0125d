package redact

import "strings"

// class says what the name of a value makes of it.
type class int

const (
	open    class = iota // no secret
	weak                 // a secret if it looks like key material
	key                  // a secret, if it is text and not the path of a key file
	token                // a secret, if it is text; small numbers are counts
	header               // a credential to the end of its line
	strict               // a secret, numbers too
	content              // what a client asked or an engine answered
)

// Sensitive reports whether a value of this name is a secret: a password, a token, a
// credential, a key that is not a public one. Names that only speak about a secret (its
// digest, its file, a count of tokens) are not.
func Sensitive(name string) bool {
	c := classify(name)
	return c != open && c != weak && c != content
}

var contents = set("prompt prompts messages prompt_token_ids request_body response_body")

// stems are found in every name that is not open.
var stems = []string{"key", "token", "passw", "passphrase", "pwd", "secret", "credential", "authorization", "cookie", "prompt", "messages", "_body"}

// classify judges a name by its words.
func classify(name string) class {
	name = name[strings.LastIndexByte(name, '/')+1:] // a fact such as host/h1/key is named by its last part
	if len(name) < 3 || len(name) > 200 {
		return open
	}
	lower := strings.ToLower(name)
	hit := false
	for _, s := range stems {
		hit = hit || strings.Contains(lower, s)
	}
	if !hit {
		return open
	}
	if contents[lower] {
		return content
	}
	w := words(name)
	if len(w) == 0 || len(w) > 1 && descriptive[w[len(w)-1]] || anyOf(w, public) {
		return open
	}
	upper := name == strings.ToUpper(name)
	best := open
	for i := range w {
		best = max(best, classifyWord(w, i, upper))
	}
	return best
}

// classifyWord judges word i among its neighbours. upper: the name has the form of an
// environment variable, which rarely counts or describes.
func classifyWord(w []string, i int, upper bool) class {
	word, before, after := w[i], "", ""
	if i > 0 {
		before = w[i-1]
	}
	if i < len(w)-1 {
		after = w[i+1]
	}
	switch {
	case has(word, "password", "passwd", "passphrase", "secret", "credential") || word == "pwd" && (i > 0 || after != ""):
		return strict
	case strings.Contains(word, "authorization"):
		return header
	case word == "cookie" || word == "cookies":
		return header
	case strings.HasSuffix(word, "token"):
		return classifyToken(strings.TrimSuffix(word, "token"), before, after, upper)
	case word == "tokens" && after == "" && tokenHolders[before]:
		return token
	case strings.HasSuffix(word, "key"):
		return classifyKey(strings.TrimSuffix(word, "key"), before, after, upper)
	case strings.HasSuffix(word, "keys") && after == "":
		if p := strings.TrimSuffix(word, "keys"); keyHolders[p] || p == "" && keyHolders[before] {
			return key
		}
	}
	return open
}

func classifyToken(prefix, before, after string, upper bool) class {
	if prefix == "" {
		prefix = before
	}
	switch {
	case counted[prefix]:
		return open
	case after == "" || holders[after] || upper:
		return token
	}
	return open
}

func classifyKey(prefix, before, after string, upper bool) class {
	alone := prefix == "" && before == ""
	if prefix == "" {
		prefix = before
	}
	switch {
	case addressed[prefix]:
		return open
	case holders[after] && after != "value": // key_value is a pair, not a secret
		return key
	case after != "" && !upper:
		return open
	case alone && after == "":
		return weak
	case before == "" && prefix != "" && !keyHolders[prefix]:
		return weak // one word that ends so: "hotkey", "mykey"
	}
	return key
}

// descriptive words end a name that speaks about a secret.
var descriptive = set(`sha256 sha512 sha1 sha md5 digest hash fingerprint id ids type types kind name names env file files path paths dir ref
	reference url uri endpoint count counts total length len size bytes bits format algorithm algo version expiry expires expiration expired
	ttl age at time seconds ms rate ratio limit limits required enabled disabled present set unset status state hint label index position seq
	budget usage cost number num max min source provider scheme class policy mode error errors reason missing valid verified used hits misses
	accounting throughput latency per count distribution bucket sum help`)

// public words make a key one that everybody may see.
var public = set("public pub verify verifying verification trusted trust known")

// addressed are what keys of the other sense look up.
var addressed = set(`host primary foreign sort partition cache group evidence record routing route map dict lookup unique index seq sequence
	block prefix kv config param object row column label metric dedup idempotency affinity sticky shard hash field attribute property
	tag join order event step edge monkey turkey don jockey hoc whis hot any up down press enter escape item parent child new old`)

// keyHolders come before a key, or keys, that are secret.
var keyHolders = set(`api access secret private auth signing sign encryption decryption ssh master service account storage shared session license
	engine client server root app admin deploy hmac aes rsa webhook`)

// tokenHolders come before tokens that are secret.
var tokenHolders = set("access api auth refresh bearer session secret service")

// counted come before a token that is a piece of text.
var counted = set(`first last eos bos pad unk sep cls mask stop special per image audio video vision start end next prompt output input max min num
	avg mean total time inter each single decode prefill generated chars tool thinking reasoning think is add begin sampled cached block text
	extra missing unexpected invalid unknown second user assistant system role`)

// holders follow a word and still name the secret itself.
var holders = set("value secret string data text raw pem material b64 base64 content contents prod production staging test dev")

func set(list string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(list) {
		out[w] = true
	}
	return out
}

func anyOf(words []string, in map[string]bool) bool {
	for _, w := range words {
		if in[w] {
			return true
		}
	}
	return false
}

func has(word string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(word, p) {
			return true
		}
	}
	return false
}

// words splits a name at punctuation and at changes of case, in lower case.
func words(name string) []string {
	var out []string
	from := 0
	flush := func(to int) {
		if to > from {
			out = append(out, strings.ToLower(name[from:to]))
		}
		from = to
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case !isAlnum(c):
			flush(i)
			from = i + 1
		case i > from && isUpper(c) && (!isUpper(name[i-1]) || i+1 < len(name) && isLower(name[i+1])):
			flush(i)
		}
	}
	flush(len(name))
	return out
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlnum(c byte) bool { return isUpper(c) || isLower(c) || isDigit(c) }

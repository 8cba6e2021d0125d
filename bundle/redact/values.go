package redact

import (
	"regexp"
	"strings"
)

var (
	reference = regexp.MustCompile(`^(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\s]+|\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|\{\{[^{}]*\}\}|%[a-z])$`)
	digest    = regexp.MustCompile(`^(?i:sha256:[0-9a-f]{12,64}|sha512:[0-9a-f]{128}|SHA256:[A-Za-z0-9+/]{43}=?)$`)
	hexDigest = regexp.MustCompile(`^[0-9a-f]+$`)
	publicKey = regexp.MustCompile(`^(ssh-ed25519|ssh-rsa|ecdsa-sha2-[a-z0-9-]+|sk-[a-z0-9@.-]+) AAAA[A-Za-z0-9+/=]+`)
	keyFile   = regexp.MustCompile(`^(\.{0,2}/)?([A-Za-z0-9_{}~.-]+/)*[A-Za-z0-9_-]+\.(key|pem|pub|crt|cer|json|txt|env|ya?ml)$`)
	smallNum  = regexp.MustCompile(`^[0-9][0-9.,_]{0,8}$`)
	material  = regexp.MustCompile(`^[A-Za-z0-9+/_.~=-]{16,}$`)
	nothing   = set(`none null nil true false unset <nil> <none> undefined - -- ... redacted [redacted] <redacted> empty missing required () [] {} "" ''`)
)

// Holds reports whether a value of this name is a secret: its name says so, and it is no
// reference, no path of a key file, no count.
func Holds(name, value string) bool {
	return Sensitive(name) && isSecret(strings.TrimSpace(value), classify(name))
}

// secretOf returns the part of a value that its name's class makes a secret, as from
// and to; to is 0 when there is none. A scheme such as Bearer stays.
func secretOf(v string, c class) (from, to int) {
	if c == content {
		if strings.TrimSpace(stripMarks(v)) == "" {
			return 0, 0
		}
		return 0, len(v)
	}
	from = len(v) - len(strings.TrimLeft(v, " \t\r\n"))
	to = len(strings.TrimRight(v, " \t\r\n"))
	if from >= to {
		return 0, 0
	}
	if word, rest, ok := strings.Cut(v[from:to], " "); ok && schemes[strings.ToLower(word)] {
		from = to - len(strings.TrimLeft(rest, " "))
	}
	if !isSecret(v[from:to], c) {
		return 0, 0
	}
	return from, to
}

var schemes = set("bearer basic token apikey negotiate digest")

// isSecret judges a trimmed value.
func isSecret(v string, c class) bool {
	bare := strings.Trim(stripMarks(v), " \t\r\n,;:.\"'\\()[]{}")
	switch {
	case bare == "" || nothing[strings.ToLower(v)] || strings.Trim(v, "*•.") == "" || len(v) > 2 && strings.Trim(v, "xX") == "":
		return false
	case reference.MatchString(v), digest.MatchString(v), publicKey.MatchString(v):
		return false
	case strings.Contains(v, "-----BEGIN PUBLIC KEY-----") && !strings.Contains(v, "PRIVATE KEY"):
		return false
	case c == strict || c == header:
		return true
	case keyFile.MatchString(v):
		return false
	case c == weak:
		return looksRandom(bare)
	case c == token:
		return !smallNum.MatchString(v)
	}
	return c == key
}

// looksRandom reports whether a word could be key material: long, of base64's letters,
// letters and digits mixed, and no digest in hex.
func looksRandom(v string) bool {
	if !material.MatchString(v) || strings.Count(v, "/") > len(v)/16 {
		return false
	}
	if (len(v) == 32 || len(v) == 40 || len(v) == 64 || len(v) == 128) && hexDigest.MatchString(v) {
		return false
	}
	var upper, lower, digits int
	for i := range len(v) {
		switch {
		case isUpper(v[i]):
			upper++
		case isLower(v[i]):
			lower++
		case isDigit(v[i]):
			digits++
		}
	}
	return digits >= 2 && upper+lower >= 6 && digits+upper+lower >= len(v)*9/10
}

// prefixes begin credentials of a known form, with the least number of characters that follow.
var prefixes = []struct {
	prefix string
	rest   int
}{
	{"hf_", 20}, {"sk-", 20}, {"ghp_", 30}, {"gho_", 30}, {"ghs_", 30}, {"ghu_", 30}, {"ghr_", 30}, {"github_pat_", 30}, {"glpat-", 16},
	{"xoxb-", 16}, {"xoxp-", 16}, {"xoxa-", 16}, {"xoxr-", 16}, {"nvapi-", 20}, {"AKIA", 16}, {"ASIA", 16}, {"AIza", 30}, {"npm_", 30}, {"pypi-", 30},
}

// isCredential reports whether a word has the form of a credential of a well-known issuer.
func isCredential(word string) bool {
	for _, p := range prefixes {
		if !strings.HasPrefix(word, p.prefix) || len(word)-len(p.prefix) < p.rest {
			continue
		}
		rest := word[len(p.prefix):]
		if strings.HasPrefix(p.prefix, "A") {
			return strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
		}
		return strings.ContainsAny(rest, "0123456789")
	}
	return isJWT(word)
}

// isJWT recognises three parts of base64, the first of which begins a JSON object.
func isJWT(word string) bool {
	if !strings.HasPrefix(word, "eyJ") {
		return false
	}
	parts := strings.Split(word, ".")
	return len(parts) == 3 && len(parts[0]) > 10 && len(parts[1]) > 10 && len(parts[2]) > 10
}

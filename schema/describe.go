package schema

import (
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
	"strings"
)

// phrases puts definitions into words.
var phrases = map[string]string{
	"#NonEmpty": "text that is not empty",
	"#Id":       "a name of letters, digits, dots, dashes and underscores, at most 63",
	"#Duration": `a duration such as "300ms" or "2m"`,
	"#Size":     `a size such as "512KiB" or "8MiB"`,
	"#FileRef":  `a reference "file:PATH"`,
	"#Platform": `a system and machine such as "linux/arm64"`,
	"#KMSRef":   "a key of a key management such as \"awskms:///alias/narwhal\"",
	"#Listen":   `an address "HOST:PORT"`,
	"#HostKey":  `a host key "ssh-ed25519 AAAA…" or a fingerprint "SHA256:…" of 43 characters`,
	"#Digest":   `"sha256:" and 64 hexadecimal digits`,
	"#Range":    `a range of ports such as "45000-45100"`,
	"#Name":     "a name of letters, digits, dots, dashes and underscores that begins with a letter or digit",
	"#Variable": "the name of an environment variable",
	"#Address":  "a host name or address, without scheme, space or leading dash",
	"#User":     "a user name without space or leading dash",
	"#Device":   "the name of a network interface",
	"#Unit":     "the name of a systemd unit",
	"#GPU":      "the index or UUID of a GPU",
	"#Devices":  `names of network interfaces, or HCA:port, with commas between them`,
	"#Word":     "a name of letters, digits, dots, dashes and underscores",
	"#PortOr0":  "a port from 0 to 65535",
	"#Port":     "a port from 1 to 65535",
	"#Natural":  "a whole number, at least 0",
	"#Count":    "a whole number, at least 1",
	"#Above0":   "a number above 0",
	"#AtLeast0": "a number, at least 0",

	"#DevicePath": `a device such as "/dev/infiniband/uverbs0" or "nvidia.com/gpu=0"`,
	"#MountPath":  "an absolute path of letters, digits, spaces, dots, dashes, underscores and /",

	"#Endpoint":  `an address "http://HOST:PORT" or "https://HOST:PORT"`,
	"#KeyPrefix": "a prefix of keys that begins with / and holds letters, digits, dots, dashes, underscores and /",
}

var words = map[string]string{
	"string": "text", "bool": "true or false", "number": "a number", "int64": "a whole number", "_": "any value",
}

var bounds = map[token.Token]string{
	token.GTR: "above ", token.GEQ: "at least ", token.LSS: "below ", token.LEQ: "at most ",
}

// describe says what an expression wants.
func (s shape) describe(e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		if p, ok := phrases[id.Name]; ok {
			return p
		}
		if w, ok := words[id.Name]; ok {
			return w
		}
	}
	switch x := e.(type) {
	case *ast.ParenExpr:
		return s.describe(x.X)
	case *ast.UnaryExpr:
		if x.Op == token.MUL {
			return s.describe(x.X)
		}
	}
	if alts := s.alternatives(e); len(alts) > 1 {
		return s.describeAlternatives(alts)
	}
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == token.AND {
		out := s.describe(b.X)
		if _, bound := b.Y.(*ast.UnaryExpr); bound && strings.HasSuffix(out, "number") {
			return out + " " + s.describe(b.Y)
		}
		return out + ", " + s.describe(b.Y)
	}
	switch x := s.resolve(e).(type) {
	case *ast.BasicLit:
		return x.Value
	case *ast.StructLit:
		return "an object"
	case *ast.ListLit:
		return "a list"
	case *ast.UnaryExpr:
		if lit, ok := x.X.(*ast.BasicLit); ok && bounds[x.Op] != "" {
			return bounds[x.Op] + lit.Value
		}
		return "another form"
	case *ast.Ident:
		return words[x.Name]
	default:
		return s.describe(x)
	}
}

// describeAlternatives leaves out a default that another alternative covers.
func (s shape) describeAlternatives(alts []ast.Expr) string {
	var out []string
	for i, a := range alts {
		if isDefault(a) && s.covered(a.(*ast.UnaryExpr).X, append(alts[:i:i], alts[i+1:]...)) {
			continue
		}
		if d := s.describe(a); !contains(out, d) {
			out = append(out, d)
		}
	}
	if n := len(out); n > 1 {
		return strings.Join(out[:n-1], ", ") + " or " + out[n-1]
	}
	return strings.Join(out, "")
}

func (s shape) covered(def ast.Expr, others []ast.Expr) bool {
	n := literalNode(s.resolve(def))
	if n == nil {
		_, list := s.resolve(def).(*ast.ListLit)
		return list
	}
	for _, o := range others {
		if s.accepts(o, n) {
			return true
		}
	}
	return false
}

func literalNode(e ast.Expr) *node {
	x, ok := e.(*ast.BasicLit)
	if !ok {
		return nil
	}
	switch x.Kind {
	case token.NULL:
		return &node{kind: kindNull}
	case token.TRUE, token.FALSE:
		return &node{kind: kindBool, bool: x.Kind == token.TRUE}
	case token.INT:
		return &node{kind: kindInt, text: x.Value}
	case token.FLOAT:
		return &node{kind: kindFloat, text: x.Value}
	case token.STRING:
		if text, err := literal.Unquote(x.Value); err == nil {
			return &node{kind: kindString, text: text}
		}
	}
	return nil
}

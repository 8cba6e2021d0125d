package remote

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Stage is how far a connection came.
type Stage string

// Stages, in their order.
const (
	StageResolve   Stage = "resolve"   // configuration and name lookup
	StageConnect   Stage = "connect"   // TCP, or a channel of the hop before
	StageHandshake Stage = "handshake" // SSH key exchange, before the host key is seen
	StageHostKey   Stage = "host key"
	StageAuth      Stage = "auth"
	StageChannel   Stage = "channel" // a session, SFTP or forwarding on an open connection
)

// HopError says which hop of a chain failed, and where.
type HopError struct {
	Host  string // id of the host that was asked for
	Hop   string // id of the hop that failed; equal to Host without jumps
	Addr  string // "" when the configuration failed
	Stage Stage
	Err   error
}

func (e *HopError) Error() string {
	var b strings.Builder
	b.WriteString("reach host " + e.Host)
	if e.Hop != e.Host && e.Hop != "" {
		b.WriteString(" through jump host " + e.Hop)
	}
	if e.Addr != "" {
		b.WriteString(" (" + e.Addr + ")")
	}
	return fmt.Sprintf("%s: %s: %s", b.String(), e.Stage, printable(e.Err.Error()))
}

func (e *HopError) Unwrap() error { return e.Err }

// LostError is a connection that ended while it was needed. What ran on it may have been
// done or not.
type LostError struct {
	Host string
	Hop  string // the hop found dead; equal to Host where no jump is known to be
	Err  error
}

func (e *LostError) Error() string {
	at := ""
	if e.Hop != e.Host && e.Hop != "" {
		at = " at jump host " + e.Hop
	}
	return fmt.Sprintf("keep connection to host %s: lost%s: %s", e.Host, at, printable(e.Err.Error()))
}

func (e *LostError) Unwrap() error { return e.Err }

// ExitError is a command that ended with a code other than 0. Result has its output.
type ExitError struct {
	Host    string
	Command string // its first word, or "script"
	Code    int    // 128 + n where signal n ended it
	// LastLine is the last line of standard error, printable and at most 200 bytes.
	LastLine string
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("run %s on host %s: exit %d", printable(e.Command), e.Host, e.Code)
	if e.LastLine != "" {
		s += ": " + e.LastLine
	}
	return s
}

// LimitError is a command that was ended because its limit passed.
type LimitError struct {
	Host    string
	Command string
	Limit   time.Duration
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("run %s on host %s: not done within its limit of %s", printable(e.Command), e.Host, e.Limit)
}

// Timeout marks the error as one of time, as net.Error does.
func (e *LimitError) Timeout() bool { return true }

// NoSpaceError is a file that does not fit. Sizes are bytes.
type NoSpaceError struct {
	Host string
	Path string
	Need int64
	Free int64
	Err  error // the failed write, nil when it was not tried
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("put %s on host %s: %d bytes needed, %d bytes free", printable(e.Path), e.Host, e.Need, e.Free)
}

func (e *NoSpaceError) Unwrap() error { return e.Err }

// PolicyError is an operation that the policy refused; it was not begun.
type PolicyError struct {
	Operation Operation
	Err       error
}

func (e *PolicyError) Error() string {
	return fmt.Sprintf("%s on host %s: refused by policy: %v", e.Operation.Kind, e.Operation.Host, e.Err)
}

func (e *PolicyError) Unwrap() error { return e.Err }

// DigestError is a file whose bytes are not those that were announced.
type DigestError struct {
	Host string // "" when the local source differs
	Path string
	Want string // hex
	Got  string
}

func (e *DigestError) Error() string {
	where := "on host " + e.Host
	if e.Host == "" {
		where = "from its source"
	}
	return fmt.Sprintf("put %s: sha256 %s %s, want %s", printable(e.Path), e.Got, where, e.Want)
}

// TooLargeError is a file above the limit of a get.
type TooLargeError struct {
	Host string
	Path string
	Max  int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("get %s from host %s: larger than %d bytes", printable(e.Path), e.Host, e.Max)
}

// CommandError is a command or file request that cannot be sent as it is; nothing was begun.
type CommandError struct {
	Host   string
	Reason string
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("prepare command for host %s: %s", e.Host, e.Reason)
}

// printable strips control characters of text from another machine and bounds it.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case unicode.IsControl(r), unicode.In(r, unicode.Cf), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)
	const most = 600
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

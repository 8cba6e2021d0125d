package fleet

import "time"

// Defaults of a router, for its flags, its own limits and deploy.router alike; package schema
// repeats them in CUE, and a test compares.
const (
	DefaultListen        = "127.0.0.1:8000"
	DefaultHeaderBytes   = 64 << 10
	DefaultHeaderTimeout = 10 * time.Second
	DefaultIdleTimeout   = 2 * time.Minute
	DefaultLeaseTTL      = 5 * time.Second
	DefaultLeaseRenew    = time.Second
	DefaultLeaseMargin   = time.Second
	DefaultRotateBytes   = 256 << 20
	DefaultKeep          = 0 // all
	DefaultLendFrom      = 0.1
	DefaultAffinity      = true
)

// RouterHTTP is how the router meets its clients. Paths are on the router's host.
type RouterHTTP struct {
	MaxHeaderBytes int      `json:"max_header_bytes"` // of one request
	HeaderTimeout  Duration `json:"header_timeout"`   // for a request's headers to arrive; above 0
	IdleTimeout    Duration `json:"idle_timeout"`     // of a connection between requests; above 0
	// Keepalive is the silence of an engine after which a stream gets a comment frame; 0 = none.
	Keepalive Duration `json:"keepalive"`
	// ContinueStreams goes on elsewhere with a stream whose engine broke after output began.
	ContinueStreams bool `json:"continue_streams"`
	// Tenants is the file of API keys and limits ("file:PATH"), "" = everybody, without limits.
	Tenants string `json:"tenants"`
	// ControlToken is a secret reference to the bearer token of the control routes, "" = none.
	ControlToken SecretRef `json:"control_token"`
}

// RouterLease is how routers of one fleet agree on the one that serves: a file that they
// share, or etcd, or neither. TTL > Renew + Margin.
type RouterLease struct {
	Path   string   `json:"path"` // absolute, on the router's hosts; "" = none
	Etcd   *Etcd    `json:"etcd,omitempty"`
	TTL    Duration `json:"ttl"`    // how long a claim holds unless it is renewed
	Renew  Duration `json:"renew"`  // between renewals
	Margin Duration `json:"margin"` // by which the holder stops before its claim ends
}

// On reports whether a lease is configured.
func (l RouterLease) On() bool { return l.Path != "" || l.Etcd != nil }

// Etcd is a store that the routers of a fleet share.
type Etcd struct {
	Endpoints []string  `json:"endpoints"` // http(s)://HOST:PORT
	Prefix    string    `json:"prefix"`    // of every key
	User      string    `json:"user"`      // "" = no authentication by name
	Password  SecretRef `json:"password"`
	// CA, Cert and Key are file references ("file:PATH"), "" = the system's roots, no client certificate.
	CA   string `json:"ca"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// RouterJournal is how the router keeps its journal.
type RouterJournal struct {
	RotateBytes int64 `json:"rotate_bytes"` // size at which a new file begins; 0 = never
	Keep        int   `json:"keep"`         // old files that stay; 0 = all
	// Lossless makes requests wait for a slow disk, where else rows are dropped and counted.
	Lossless bool `json:"lossless"`
}

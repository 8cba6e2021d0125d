package loopback

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/narwhal-fleet/narwhal/fleet"
	"golang.org/x/crypto/ssh"
)

// MaxSessions is the default number of sessions a connection carries, as in OpenSSH.
const MaxSessions = 10

// Config describes one server.
type Config struct {
	// Root is an existing folder: the commands' HOME and working directory.
	Root string
	// HostKey is a private key as PEM; empty makes a new one.
	HostKey []byte
	// Authorized are authorized_keys lines.
	Authorized []string
	// Password, unless empty, is accepted by the password and keyboard-interactive methods.
	Password fleet.Secret
	// User, unless "", is the only user name let in.
	User string
	// Listen is a loopback address with a port; "" is 127.0.0.1:0.
	Listen string
	// Env holds "NAME=value" lines added to every command's environment.
	Env []string
	// Mark tags the server's processes in their environment, so that a later server with the
	// same mark finds them again; "" makes a random one.
	Mark string
	// Shell is the account's login shell, run as SHELL -c COMMAND; "" is /bin/sh.
	Shell string
	// Seen, unless nil, is told each command and each change of files before it happens,
	// from several goroutines at once.
	Seen func(Act)
	// MaxSessions a connection; 0 is the constant of that name.
	MaxSessions int
}

// Act is something that a client made the server do.
type Act struct {
	Kind string // exec, write, or the name of the SFTP request that changes files
	// Text is the command, or the path; Target is the second path of requests that have two.
	Text, Target string
}

func (s *Server) see(kind, text, target string) {
	if s.cfg.Seen != nil {
		s.cfg.Seen(Act{kind, text, target})
	}
}

// Server is one SSH server. Its methods may be called concurrently.
type Server struct {
	cfg        Config
	authorised map[string]bool
	listener   net.Listener
	signer     atomic.Pointer[ssh.Signer]
	faults     faults
	table      table

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

// Start listens and serves until Close.
func Start(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, conns: map[net.Conn]bool{}}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for ssh: %w", err)
	}
	s.listener = l
	s.wg.Go(s.accept)
	return s, nil
}

func (s *Server) prepare() error {
	root, err := filepath.Abs(s.cfg.Root)
	if err != nil {
		return fmt.Errorf("find root of ssh server: %w", err)
	}
	if info, err := os.Stat(root); err != nil {
		return fmt.Errorf("find root of ssh server: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("find root of ssh server: %s is not a folder", root)
	}
	s.cfg.Root = root
	if s.authorised, err = authorised(s.cfg.Authorized); err != nil {
		return err
	}
	if s.cfg.Listen == "" {
		s.cfg.Listen = "127.0.0.1:0"
	}
	if host, _, err := net.SplitHostPort(s.cfg.Listen); err != nil || !isLoopback(host) {
		return fmt.Errorf("listen for ssh: %q is not a loopback address with a port", s.cfg.Listen)
	}
	if s.cfg.MaxSessions == 0 {
		s.cfg.MaxSessions = MaxSessions
	}
	if s.cfg.Mark == "" {
		var b [12]byte
		_, _ = rand.Read(b[:])
		s.cfg.Mark = hex.EncodeToString(b[:])
	}
	if s.cfg.Shell == "" {
		s.cfg.Shell = "/bin/sh"
	}
	s.table.mark = markName + "=" + s.cfg.Mark
	s.faults.space.Store(-1)
	if len(s.cfg.HostKey) == 0 {
		key, err := GenerateKey()
		if err != nil {
			return err
		}
		s.cfg.HostKey = key.Private
	}
	return s.SetHostKey(s.cfg.HostKey)
}

// Addr is the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Root is the absolute path of the server's folder.
func (s *Server) Root() string { return s.cfg.Root }

// HostKey returns the current public host key as an authorized_keys line and its fingerprint.
func (s *Server) HostKey() (text, fingerprint string) {
	key := (*s.signer.Load()).PublicKey()
	return line(key), ssh.FingerprintSHA256(key)
}

// Close stops listening, drops every connection and waits for their goroutines. It kills
// no process: KillAll does. A process that goes on running is waited for in the background.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	err := s.listener.Close()
	s.Drop()
	s.faults.Mute(false)
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		conn := &gatedConn{Conn: c, faults: &s.faults}
		if s.faults.refuse.Load() || !s.add(conn) {
			_ = c.Close()
			continue
		}
		s.wg.Go(func() {
			defer s.remove(conn)
			s.serve(conn)
		})
	}
}

func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = true
	return true
}

func (s *Server) remove(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Server) serverConfig() *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if s.authorised[string(key.Marshal())] && s.knows(meta.User()) {
				return nil, nil
			}
			return nil, errRefused
		},
	}
	if !s.cfg.Password.Empty() {
		cfg.PasswordCallback = func(meta ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			return nil, s.checkPassword(meta.User(), string(password))
		}
		cfg.KeyboardInteractiveCallback = func(meta ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"Password: "}, []bool{false})
			if err != nil || len(answers) != 1 {
				return nil, errRefused
			}
			if err := s.checkPassword(meta.User(), answers[0]); err != nil {
				return nil, err
			}
			// OpenSSH with PAM closes with a round that asks nothing.
			_, err = ask("", "", nil, nil)
			return nil, err
		}
	}
	cfg.AddHostKey(*s.signer.Load())
	return cfg
}

var errRefused = errors.New("credentials are not known here")

func (s *Server) knows(user string) bool { return s.cfg.User == "" || s.cfg.User == user }

func (s *Server) checkPassword(user, password string) error {
	want := s.cfg.Password.Reveal()
	if s.knows(user) && subtle.ConstantTimeCompare([]byte(password), []byte(want)) == 1 {
		return nil
	}
	return errRefused
}

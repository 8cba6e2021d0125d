package loopback

import (
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/ssh"
)

// serve runs one connection to its end, with all that it carries.
func (s *Server) serve(c net.Conn) {
	conn, channels, requests, err := ssh.NewServerConn(c, s.serverConfig())
	if err != nil {
		return
	}
	defer conn.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { answer(requests) })
	var sessions atomic.Int32
	for request := range channels {
		switch request.ChannelType() {
		case "session":
			if int(sessions.Load()) >= s.cfg.MaxSessions {
				_ = request.Reject(ssh.ConnectionFailed, "open failed")
				continue
			}
			sessions.Add(1)
			wg.Go(func() {
				defer sessions.Add(-1)
				s.session(request)
			})
		case "direct-tcpip":
			wg.Go(func() { forward(request) })
		default:
			_ = request.Reject(ssh.UnknownChannelType, "unknown channel type")
		}
	}
}

// answer replies to global requests: keepalives get the failure that OpenSSH sends too.
func answer(requests <-chan *ssh.Request) {
	for r := range requests {
		if r.WantReply {
			_ = r.Reply(false, nil)
		}
	}
}

// directTCPIP is the payload of a direct-tcpip open, RFC 4254 section 7.2.
type directTCPIP struct {
	Host       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

func forward(request ssh.NewChannel) {
	var to directTCPIP
	if err := ssh.Unmarshal(request.ExtraData(), &to); err != nil || to.Port > 65535 {
		_ = request.Reject(ssh.ConnectionFailed, "malformed request")
		return
	}
	if !isLoopback(to.Host) {
		_ = request.Reject(ssh.Prohibited, "only loopback addresses are forwarded")
		return
	}
	remote, err := net.Dial("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = request.Reject(ssh.ConnectionFailed, "connect failed")
		return
	}
	defer remote.Close()
	channel, requests, err := request.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		ssh.DiscardRequests(requests)
		// The channel is gone: release the copy that reads from the other side.
		_ = remote.Close()
	})
	wg.Go(func() {
		_, _ = io.Copy(remote, channel)
		if c, ok := remote.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	})
	_, _ = io.Copy(channel, remote)
	_ = channel.CloseWrite()
	_ = channel.Close()
	wg.Wait()
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

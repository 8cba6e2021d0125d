package loopback

import (
	"io"
	"os"
	"os/exec"
	"os/user"
	"sync"
	"syscall"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// searchPath is the PATH of every command.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// session serves one session channel: a single exec or the sftp subsystem.
func (s *Server) session(request ssh.NewChannel) {
	channel, requests, err := request.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	for r := range requests {
		var text struct{ Value string }
		known := r.Type == "exec" || r.Type == "subsystem"
		if !known || ssh.Unmarshal(r.Payload, &text) != nil || (r.Type == "subsystem" && text.Value != "sftp") {
			reply(r, false)
			continue
		}
		if r.Type == "subsystem" {
			reply(r, true)
			s.serveFiles(channel, requests)
		} else {
			s.exec(channel, requests, r, text.Value)
		}
		return
	}
}

func reply(r *ssh.Request, ok bool) {
	if r.WantReply {
		_ = r.Reply(ok, nil)
	}
}

func (s *Server) serveFiles(channel ssh.Channel, requests <-chan *ssh.Request) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { refuseAll(requests) })
	h := &files{server: s}
	server := sftp.NewRequestServer(channel, sftp.Handlers{FileGet: h, FilePut: h, FileCmd: h, FileList: h},
		sftp.WithStartDirectory(s.cfg.Root))
	code := uint32(0)
	if err := server.Serve(); err != nil && err != io.EOF {
		code = 1
	}
	_ = server.Close()
	sendExit(channel, code)
	_ = channel.Close()
}

func refuseAll(requests <-chan *ssh.Request) {
	for r := range requests {
		reply(r, false)
	}
}

func sendExit(channel ssh.Channel, code uint32) {
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
}

// exec runs a command until it has exited and its output is drained, or the channel is gone.
func (s *Server) exec(channel ssh.Channel, requests <-chan *ssh.Request, r *ssh.Request, command string) {
	p, err := s.start(command)
	if err != nil {
		reply(r, false)
		return
	}
	reply(r, true)
	var wg, output sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(p.stdin, channel)
		_ = p.stdin.Close()
	})
	output.Go(func() { _, _ = io.Copy(channel, p.stdout); _ = p.stdout.Close() })
	output.Go(func() { _, _ = io.Copy(channel.Stderr(), p.stderr); _ = p.stderr.Close() })
	gone := make(chan struct{})
	wg.Go(func() {
		defer close(gone)
		refuseAll(requests)
		p.hangUp()
	})
	select {
	case state := <-p.exited:
		sendState(channel, state)
	case <-gone:
	}
	output.Wait()
	_ = channel.CloseWrite()
	_ = channel.Close()
	wg.Wait()
}

func sendState(channel ssh.Channel, state *os.ProcessState) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		sendExit(channel, uint32(state.ExitCode()))
		return
	}
	payload := struct {
		Signal  string
		Core    bool
		Message string
		Lang    string
	}{Signal: signalNames[status.Signal()]}
	if payload.Signal == "" {
		payload.Signal = "TERM"
	}
	_, _ = channel.SendRequest("exit-signal", false, ssh.Marshal(payload))
}

// signalNames are those of RFC 4254 section 6.10.
var signalNames = map[syscall.Signal]string{
	syscall.SIGABRT: "ABRT", syscall.SIGALRM: "ALRM", syscall.SIGFPE: "FPE", syscall.SIGHUP: "HUP",
	syscall.SIGILL: "ILL", syscall.SIGINT: "INT", syscall.SIGKILL: "KILL", syscall.SIGPIPE: "PIPE",
	syscall.SIGQUIT: "QUIT", syscall.SIGSEGV: "SEGV", syscall.SIGTERM: "TERM",
	syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
}

// process is one running command with this side's ends of its pipes.
type process struct {
	stdin, stdout, stderr *os.File
	exited                <-chan *os.ProcessState
}

// hangUp closes the pipes, as sshd does when a channel is gone. It sends no signal.
func (p *process) hangUp() {
	_ = p.stdin.Close()
	_ = p.stdout.Close()
	_ = p.stderr.Close()
}

// login is the name of the user that commands run as, "" where the system does not tell.
var login = sync.OnceValue(func() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
})

func (s *Server) start(command string) (*process, error) {
	s.see("exec", command, "")
	cmd := exec.Command(s.cfg.Shell, "-c", command)
	cmd.Dir = s.cfg.Root
	cmd.Env = append([]string{"PATH=" + searchPath, "HOME=" + s.cfg.Root, "LANG=C", "SHELL=" + s.cfg.Shell, "USER=" + login(), "LOGNAME=" + login(), s.table.mark}, s.cfg.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var near, far [3]*os.File
	for i := range near {
		r, w, err := os.Pipe()
		if err != nil {
			closeFiles(near[:])
			closeFiles(far[:])
			return nil, err
		}
		near[i], far[i] = r, w
	}
	near[0], far[0] = far[0], near[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far[0], far[1], far[2]
	defer closeFiles(far[:])
	if err := cmd.Start(); err != nil {
		closeFiles(near[:])
		return nil, err
	}
	s.table.add(cmd.Process.Pid)
	exited := make(chan *os.ProcessState, 1)
	// Bound to the life of the child, which Close leaves alone.
	go func() {
		_ = cmd.Wait()
		s.table.reaped(cmd.Process.Pid)
		exited <- cmd.ProcessState
	}()
	return &process{stdin: near[0], stdout: near[1], stderr: near[2], exited: exited}, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

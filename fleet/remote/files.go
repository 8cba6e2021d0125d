package remote

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/pkg/sftp"
)

// filesGrace is how long a file operation may go on after its context has ended before the SFTP
// session is closed under it.
const filesGrace = 3 * time.Second

// sftp returns the host's SFTP session, opened on first use. It holds one session slot for good.
func (h *Host) sftp(ctx context.Context) (*sftp.Client, error) {
	select {
	case h.filesGate <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-h.filesGate }()
	if h.files != nil {
		return h.files, nil
	}
	if err := h.acquire(ctx); err != nil {
		return nil, err
	}
	client, err := h.openFiles(ctx)
	if err != nil {
		h.release()
		return nil, err
	}
	h.files = client
	h.background.Go(func() {
		_ = client.Wait()
		h.filesGate <- struct{}{}
		h.files = nil
		<-h.filesGate
		h.release()
	})
	return client, nil
}

func (h *Host) openFiles(ctx context.Context) (*sftp.Client, error) {
	s, err := h.session(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	stdin, err := s.StdinPipe()
	if err != nil {
		return nil, h.channelError(err)
	}
	stdout, err := s.StdoutPipe()
	if err != nil {
		return nil, h.channelError(err)
	}
	if err := s.RequestSubsystem("sftp"); err != nil {
		_ = s.Close()
		return nil, h.channelError(err)
	}
	client, err := sftp.NewClientPipe(stdout, stdin)
	if err != nil {
		_ = s.Close()
		return nil, h.channelError(err)
	}
	h.background.Go(func() {
		_ = client.Wait()
		_ = s.Close()
	})
	return client, nil
}

// withFiles runs a file operation. One that hangs after ctx has ended loses its session; the next
// operation opens another.
func (h *Host) withFiles(ctx context.Context, do func(*sftp.Client) error) error {
	client, err := h.sftp(ctx)
	if err != nil {
		return err
	}
	var once sync.Once
	var timer *time.Timer
	stop := context.AfterFunc(ctx, func() {
		once.Do(func() { timer = time.AfterFunc(filesGrace, func() { _ = client.Close() }) })
	})
	err = do(client)
	if !stop() {
		once.Do(func() {})
		if timer != nil {
			timer.Stop()
		}
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil || answered(err) {
		return err
	}
	for _, broken := range []error{sftp.ErrSSHFxConnectionLost, sftp.ErrSSHFxNoConnection, io.EOF, io.ErrClosedPipe, os.ErrClosed} {
		if errors.Is(err, broken) {
			return h.outcomeUnknown(err)
		}
	}
	// A failed write shows as an error of the transport before the connection is seen as lost.
	select {
	case <-h.conn.lost:
		return h.lostError()
	case <-time.After(parentGrace):
		return err
	}
}

// answered reports whether err is an answer of the server, which therefore was there.
func answered(err error) bool {
	var status *sftp.StatusError
	var full *NoSpaceError
	var digest *DigestError
	var large *TooLargeError
	return errors.As(err, &status) || errors.As(err, &full) || errors.As(err, &digest) || errors.As(err, &large) ||
		missing(err) || errors.Is(err, fs.ErrPermission)
}

// lockPath keeps two operations of this host off one path.
func (h *Host) lockPath(path string) (unlock func()) {
	h.mu.Lock()
	m := h.paths[path]
	if m == nil {
		m = &sync.Mutex{}
		h.paths[path] = m
	}
	h.mu.Unlock()
	m.Lock()
	return m.Unlock
}

// missing reports whether err says that a file is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

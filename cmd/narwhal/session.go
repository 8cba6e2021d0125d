package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// session is one command's hold on a fleet: its file, its record, its lock.
type session struct {
	loaded
	app    *app
	state  string
	dir    string // of the run
	run    string
	record *record.Run
	lock   *record.Lock
	runner *gates.Runner
	jumps  *remote.Jumps
}

// openSession loads the fleet, takes the local lock and opens a run: the named one, the
// latest, or a new one when there is none or fresh is set.
func (a *app) openSession(ctx context.Context, files []string, runPrefix string, fresh bool, progress gates.Progress) (*session, error) {
	l, err := a.loadFleet(ctx, files)
	if err != nil {
		return nil, err
	}
	return a.openLoaded(l, runPrefix, fresh, progress)
}

// openLoaded is openSession for a fleet that is loaded.
func (a *app) openLoaded(l loaded, runPrefix string, fresh bool, progress gates.Progress) (*session, error) {
	if err := l.withDeploy(); err != nil {
		return nil, err
	}
	s := &session{loaded: l, app: a}
	var err error
	if s.state, err = a.stateDir(); err != nil {
		return nil, err
	}
	if err := s.open(runPrefix, fresh); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.newRunner(progress); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *session) open(prefix string, fresh bool) error {
	name := s.fleet.Deploy.Name
	dir, err := record.FleetDir(s.state, name)
	if err != nil {
		return problem.Wrap(problem.Invalid, "fleet_name", "open the state folder", err, "give deploy.name letters, digits and dashes only")
	}
	s.lock, err = record.Acquire(filepath.Join(dir, "lock"), record.Self(s.fleet.Deploy.Name), s.fleet.Deploy.Limits.LockTTL.D())
	var held *record.LockedError
	if errors.As(err, &held) {
		return problem.New(problem.Locked, "fleet_locked", "another run holds this fleet: "+held.Error(), "wait until it ends; narwhal gate status shows how far it is")
	} else if err != nil {
		return problem.Wrap(problem.Failed, "state_unwritable", "lock the fleet", err, "check that the state folder can be written")
	}
	if !fresh {
		s.dir, err = record.Resolve(s.state, name, prefix)
		if errors.Is(err, record.ErrNoRun) && (prefix == "" || prefix == "latest") {
			fresh = true
		} else if err != nil {
			return problem.Wrap(problem.Invalid, "no_such_run", "find the run", err, "narwhal gate runs lists them")
		}
	}
	opt := record.Options{CrashAfter: s.crashAfter()}
	if !fresh {
		if fresh, err = s.foreign(prefix); err != nil {
			return err
		}
	}
	if fresh {
		return s.create(name, opt)
	}
	s.run = filepath.Base(s.dir)
	s.record, err = record.Open(s.dir, opt)
	return recordProblem(err)
}

// foreign reports whether the latest run belongs to another operator's key, as after a
// sandbox was made anew under the same name: then a new run starts. A run that was named
// is refused instead.
func (s *session) foreign(prefix string) (bool, error) {
	snap, err := record.Read(s.dir)
	if err != nil {
		return false, nil // opening it says what is wrong
	}
	if snap.Torn {
		fmt.Fprintf(s.app.err, "the last line of run %s was cut off; it is set aside as torn-%d.bin\n", filepath.Base(s.dir), snap.Seq+1)
	}
	signer, err := s.signer()
	if err != nil {
		return false, err
	}
	if snap.State.Operator == string(signer.Public().PEM()) {
		return false, nil
	}
	if prefix != "" && prefix != "latest" {
		return false, problem.New(problem.Refused, "other_operator", "run "+filepath.Base(s.dir)+" is signed by another key than this fleet file names",
			"use the fleet file and key of that run, or leave --run out")
	}
	fmt.Fprintf(s.app.err, "run %s was signed by another key; a new run starts\n", filepath.Base(s.dir))
	return true, nil
}

// crashAfter is a test's wish that the process dies after so many events.
func (s *session) crashAfter() int {
	n, _ := strconv.Atoi(s.app.getenv("NARWHAL_CRASH_AFTER"))
	return n
}

func (s *session) create(name string, opt record.Options) error {
	s.run = record.NewID(time.Now())
	var err error
	if s.dir, err = record.RunDir(s.state, name, s.run); err != nil {
		return err
	}
	doc, err := json.MarshalIndent(s.fleet, "", "  ")
	if err != nil {
		return err
	}
	signer, err := s.signer()
	if err != nil {
		return err
	}
	s.record, err = record.Create(s.dir, record.Header{Run: s.run, FleetName: name, Fleet: doc, Operator: string(signer.Public().PEM()), Version: version}, opt)
	return recordProblem(err)
}

func recordProblem(err error) error {
	var chain *record.ChainError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &chain):
		return problem.Wrap(problem.Unverified, "chain_broken", "open the record", err, "narwhal gate verify names everything that does not hold; narwhal gate run --new starts a new run")
	case errors.Is(err, record.ErrBusy):
		return problem.Wrap(problem.Locked, "record_busy", "open the record", err, "wait until the other command ends")
	}
	return problem.Wrap(problem.Failed, "record_unreadable", "open the record", err, "check the state folder")
}

// newRunner readies the runner with this binary as the release.
func (s *session) newRunner(progress gates.Progress) error {
	rel, err := s.release()
	if err != nil {
		return err
	}
	signer, err := s.signer()
	if err != nil {
		return err
	}
	s.jumps = remote.NewJumps()
	s.runner = &gates.Runner{
		Gates: pipeline(), Fleet: s.fleet, Release: rel, Record: s.record, Dir: s.dir, RunID: s.run,
		Secrets: s.secret(s.app), Progress: progress, Signer: signer, Holder: s.holder(),
	}
	s.runner.Connect = s.connect(s.runner.Guard)
	return nil
}

// holder tells this state folder on this workstation from every other, also from a copy of it that has the same
// path on a machine of the same name.
func (s *session) holder() string {
	host, _ := os.Hostname()
	machine, _ := os.ReadFile("/etc/machine-id")
	inode := uint64(0)
	if info, err := os.Stat(s.state); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = st.Ino
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s\x00%s", host, machine, inode, s.state, s.fleet.Deploy.Name))
	return hex.EncodeToString(sum[:16])
}

func (s *session) connect(policy func(remote.Operation) error) gates.Connect {
	lim := s.fleet.Deploy.Limits
	return func(ctx context.Context, id string) (gates.Host, error) {
		cfg, err := remote.FromFleet(s.fleet, id, s.secret(s.app))
		if err != nil {
			return nil, err
		}
		h, err := remote.Open(ctx, cfg, remote.Options{Policy: policy, ConnectTimeout: lim.Connect.D(), MaxOutput: int(lim.OutputBytes), Jumps: s.jumps})
		if err != nil {
			return nil, err
		}
		return h, nil
	}
}

// signer is the operator's key: the fleet's, else the state folder's own, made on first use.
func (s *session) signer() (*attest.Signer, error) {
	sign := s.fleet.Deploy.Sign
	var pass []byte
	if sign.Passphrase != "" {
		v, err := s.secret(s.app)(sign.Passphrase)
		if err != nil {
			return nil, err
		}
		pass = []byte(v.Reveal())
	}
	if attest.IsKMS(sign.Key) {
		return openKMS(sign.Key)
	}
	path := filepath.Join(s.state, "keys", "operator.key")
	if sign.Key != "" {
		path = s.path(sign.Key)
		if _, err := os.Stat(path); err != nil {
			return nil, problem.Wrap(problem.Invalid, "key_missing", "open the signing key", err, "narwhal keys generate -o "+path)
		}
	}
	signer, _, err := attest.OpenKeyFile(path, pass)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "key_unusable", "open the signing key", err, "check deploy.sign and the key file's mode (0600)")
	}
	return signer, nil
}

// trustOf are the keys that seals of this fleet may be signed with.
func (l *loaded) trustOf(*app) ([]*attest.Public, error) {
	var out []*attest.Public
	for _, ref := range l.fleet.Deploy.Sign.Trust {
		p, err := publicKey(l.path(ref))
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "trust_unreadable", "read a trusted key", err, "check deploy.sign.trust")
		}
		out = append(out, p)
	}
	return out, nil
}

// signers says who may seal what: the fleet's policy, else its trusted keys with everything.
func (l *loaded) signers(a *app) (attest.Signers, error) {
	if ref := l.fleet.Deploy.Sign.Policy; ref != "" {
		return signingPolicy(l.path(ref))
	}
	keys, err := l.trustOf(a)
	return attest.SignersOf(keys), err
}

// Close releases everything, the lock last.
func (s *session) Close() {
	if s.runner != nil {
		_ = s.runner.Close()
	}
	if s.jumps != nil {
		_ = s.jumps.Close()
	}
	if s.record != nil {
		_ = s.record.Close()
	}
	if s.lock != nil {
		_ = s.lock.Release()
	}
}

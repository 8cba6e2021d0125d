package gates

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// lease is the right to change a fleet, held on the router's host so that operators on
// different workstations see each other. Its clock is that host's.
type lease struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	lost   error     // somebody else took it: for good
	until  time.Time // it is held at least till then, when nobody's clock leaps
}

const exitHeld = 5 // of the script: somebody else holds the lease

// leaseScript takes or renews the lease inside a lock folder, which only one mkdir can
// make: so of two that find an expired lease, one takes it. The lock is held for
// milliseconds; one that stands for seconds is of a killed shell and is removed. Who only
// renews gets none that is not his own: somebody may have had it in between.
const leaseScript = `umask 077; d=%[1]s; mkdir -p "$d" || exit 4; f="$d/lease"; t="$d/.lease.$$"; l="$d/.lease.lock"; k=0
until mkdir "$l" 2>/dev/null; do k=$((k+1)); [ "$k" -ne 50 ] || rmdir "$l" 2>/dev/null; [ "$k" -lt 80 ] || exit 4; sleep 0.1; done
trap 'rmdir "$l"' EXIT
n=$(date +%%s); i= e=0 w=
if [ -e "$f" ]; then { read -r i; read -r e; read -r w; } <"$f"; fi
case $e in ''|*[!0-9]*) e=0;; esac
if [ "$i" != %[2]s ] && { [ "$e" -gt "$n" ] || [ %[6]d -eq 1 ]; }; then printf '%%s\n%%s\n' "$e" "$w"; exit %[5]d; fi
printf '%%s\n%%s\n%%s\n' %[2]s "$((n+%[3]d))" %[4]s >"$t" && mv -f "$t" "$f" || { rm -f "$t"; exit 4; }
if [ -n "$i" ] && [ "$i" != %[2]s ]; then printf 'taken\n%%s\n%%s\n' "$e" "$w"; fi`

const releaseScript = `f=%[1]s/lease; i=; { read -r i; } <"$f" 2>/dev/null; if [ "$i" = %[2]s ]; then rm -f "$f"; fi`

// takeLease acquires the lease and keeps it renewed until dropLease. Each call asks the
// host, so that no gate starts under a lease that was lost meanwhile.
func (r *Runner) takeLease(ctx context.Context) error {
	r.mu.Lock()
	held := r.lease
	r.mu.Unlock()
	if held != nil {
		if err := held.err(); err != nil {
			return err
		}
	}
	if held != nil {
		return r.renew(ctx, held, true)
	}
	bg, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &lease{cancel: cancel}
	if err := r.renew(ctx, l, false); err != nil {
		cancel()
		return err
	}
	l.wg.Go(func() { r.keep(bg, l) })
	r.mu.Lock()
	r.lease = l
	r.mu.Unlock()
	return nil
}

func (r *Runner) leaseTTL() time.Duration {
	if ttl := r.Fleet.Deploy.Limits.LockTTL.D(); ttl >= 3*time.Second {
		return ttl
	}
	return time.Minute
}

// abortable is a context that ends with why when somebody else takes the lease.
func (r *Runner) abortable(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, abort := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.abort = abort
	r.mu.Unlock()
	return ctx, abort
}

// leased lets nothing change a host on a lease that may have ended: a command that was stopped, or a
// workstation that slept, asks for it again first.
func (r *Runner) leased(ctx context.Context) error {
	r.mu.Lock()
	l := r.lease
	r.mu.Unlock()
	if l == nil {
		return nil // what changes nothing takes none
	}
	if err := l.err(); err != nil {
		return err
	}
	l.mu.Lock()
	until := l.until
	l.mu.Unlock()
	// The monotonic clock stands still in a workstation that sleeps, the other can be set back.
	now := time.Now()
	if now.Before(until) && now.Round(0).Before(until.Round(0)) {
		return nil
	}
	return r.renew(ctx, l, true)
}

// lose notes that somebody else has the lease, and ends what runs under it.
func (r *Runner) lose(l *lease, why error) {
	l.mu.Lock()
	l.lost = why
	l.mu.Unlock()
	r.mu.Lock()
	abort, held := r.abort, r.lease == l
	r.mu.Unlock()
	if abort != nil && held {
		abort(why)
	}
}

func (l *lease) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// keep renews until ctx ends or somebody else holds the lease. What it cannot renew for
// another reason, the next step that changes a host finds.
func (r *Runner) keep(ctx context.Context, l *lease) {
	t := time.NewTicker(r.leaseTTL() / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := r.renew(ctx, l, true); problem.StatusOf(err) == problem.Locked {
			return
		}
	}
}

// renew takes the lease on the router's host, or renews one that it had. That it was taken over from somebody is noted in
// the record.
func (r *Runner) renew(ctx context.Context, l *lease, had bool) error {
	host, ttl, asked := r.Fleet.Deploy.Router.Host, r.leaseTTL(), time.Now()
	h, err := r.host(ctx, host)
	if err != nil {
		return err
	}
	root := r.Fleet.Deploy.Hosts[host].Root
	who, own := resumedBy(), 0
	if had {
		own = 1
	}
	cmd := r.permit(remote.Command{Limit: observeLimit, Script: fmt.Sprintf(leaseScript, remote.Quote(path.Clean(root)), remote.Quote(r.Holder), int(ttl.Seconds()),
		remote.Quote(fmt.Sprintf("%s pid %d run %s", who.By, who.PID, r.RunID)), exitHeld, own)})
	res, err := h.Run(ctx, cmd)
	var exit *remote.ExitError
	if errors.As(err, &exit) && exit.Code == exitHeld {
		err := leaseHeld(host, string(res.Stdout), had)
		r.lose(l, err)
		return err
	}
	if err != nil {
		return fmt.Errorf("take the fleet's lease on host %s: %w", host, withStderr(err, res))
	}
	l.mu.Lock()
	l.until = asked.Add(ttl)
	l.mu.Unlock()
	if from, ok := strings.CutPrefix(string(res.Stdout), "taken\n"); ok {
		until, who := leaseOf(from)
		_, err := r.append(record.KindNote, "", "", host, record.Note{Text: "the fleet's lease was taken over: it had expired and nobody renewed it",
			Values: map[string]string{"from": who, "expired": until}})
		return err
	}
	return nil
}

// leaseOf reads when a lease ends and whose it is.
func leaseOf(answer string) (until, who string) {
	expires, who, _ := strings.Cut(answer, "\n")
	until = "an unknown time"
	if n, err := strconv.ParseInt(expires, 10, 64); err == nil {
		until = time.Unix(n, 0).UTC().Format(time.RFC3339)
	}
	return until, clean(strings.TrimSpace(who), 200)
}

func leaseHeld(host, answer string, had bool) error {
	until, who := leaseOf(answer)
	if who == "" && had {
		return problem.New(problem.Locked, "fleet_leased", fmt.Sprintf("this run's lease on host %s ended, and another operator had it since", host),
			"run the same command again: it looks at what runs now")
	}
	return problem.New(problem.Locked, "fleet_leased", fmt.Sprintf("another operator changes this fleet: %s holds the lease on host %s until %s", who, host, until),
		"wait until that run ends, or until the lease expires")
}

// dropLease stops renewing and gives the lease back.
func (r *Runner) dropLease() {
	r.mu.Lock()
	l := r.lease
	r.lease = nil
	r.mu.Unlock()
	if l == nil {
		return
	}
	l.cancel()
	l.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	host := r.Fleet.Deploy.Router.Host
	h, err := r.host(ctx, host)
	if err != nil {
		return // it expires by itself
	}
	root := r.Fleet.Deploy.Hosts[host].Root
	_, _ = h.Run(ctx, r.permit(remote.Command{Limit: 5 * time.Second, Script: fmt.Sprintf(releaseScript, remote.Quote(path.Clean(root)), remote.Quote(r.Holder))}))
}

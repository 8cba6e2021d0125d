package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/process"
)

// unitWorld is a sandbox whose last host is one with systemd: it has the router with its
// standby, an engine and its sidecar.
type unitWorld struct {
	*world
	host           *bootedHost
	id, root, asks string
}

func newUnitWorld(t *testing.T, scope string) *unitWorld {
	t.Helper()
	w := &unitWorld{world: newWorld(t, 3, nil)}
	last := w.sbx.Hosts[2]
	public, err := exec.Command("ssh-keygen", "-y", "-f", filepath.Join(w.dir, "sbx", "keys", "ssh")).Output()
	if err != nil {
		t.Fatal(err)
	}
	w.host = boot(t, strings.TrimSpace(string(public)))
	w.id, w.root, w.asks = last.ID, filepath.Join(w.host.dir, "narwhal"), fmt.Sprintf("127.0.0.1:%d", last.Ports.Router)
	pin, err := os.ReadFile(filepath.Join(w.host.dir, "host_key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	w.rewrite(func(doc map[string]any) {
		d := doc["deploy"].(map[string]any)
		h := d["hosts"].(map[string]any)[w.id].(map[string]any)
		h["port"], h["user"], h["root"], h["host_keys"] = w.host.port, "root", w.root, []any{strings.TrimSpace(string(pin))}
		h["supervise"] = scope
		r := d["router"].(map[string]any)
		r["host"], r["listen"] = w.id, w.asks
		r["standby"] = map[string]any{"host": w.id, "listen": fmt.Sprintf("127.0.0.1:%d", freePort(t))}
		r["lease"] = map[string]any{"path": filepath.Join(w.host.dir, "lease.json"), "ttl": "2s", "renew": "200ms", "margin": "200ms"}
		d["profile"] = map[string]any{"prefill_tokens": []any{256, 512, 1024}, "prefill_repeats": 1, "decode_requests": []any{1, 4}, "decode_tokens": []any{64, 256}, "output_tokens": 8, "pair_tokens": 64, "budget": "500ms"}
		// The engines that stay can serve without the one on this host.
		doc["engines"].([]any)[1].(map[string]any)["role"] = "decode"
	})
	return w
}

// record is the process under a name on the host with systemd.
func (w *unitWorld) record(name string) process.Record {
	w.t.Helper()
	r, ok := process.Read(filepath.Join(w.root, "run"), name)
	if !ok {
		w.t.Fatalf("%s has no record", name)
	}
	return r
}

// systemctl asks the host's manager, or its user's.
func (w *unitWorld) systemctl(user bool, args ...string) string {
	w.t.Helper()
	if user {
		args = append([]string{"--user"}, args...)
	}
	out, _ := w.host.run(append([]string{"systemctl"}, args...)...)
	return strings.TrimSpace(out)
}

func (w *unitWorld) serves() bool { status, _ := asked(w.asks); return status == 200 }

// comesBack waits until a process under a name is another one than before.
func (w *unitWorld) comesBack(name string, was process.Record) {
	w.t.Helper()
	await(w.t, name+" to come back", func() bool {
		r, ok := process.Read(filepath.Join(w.root, "run"), name)
		return ok && r.Identity != was.Identity
	})
}

// TestSystemUnits takes a router, its standby and a sidecar through a crash, a loss of power and a rollback as
// units of the host's systemd, and then as units of a user's.
func TestSystemUnits(t *testing.T) {
	t.Parallel()
	needSystemd(t)
	w := newUnitWorld(t, "system")
	if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	const router, sidecar = "narwhal-sandbox-router.service", "narwhal-sandbox-sidecar-e2.service"
	t.Run("the units run them", func(t *testing.T) {
		for name, unit := range map[string]string{"router": router, "sidecar-e2": sidecar} {
			if got, want := w.systemctl(false, "show", "--property=MainPID", "--value", unit), fmt.Sprint(w.record(name).PID); got != want {
				t.Errorf("%s: the unit's process is %s, recorded is %s", name, got, want)
			}
		}
		if got := w.systemctl(false, "is-enabled", router); got != "enabled" {
			t.Errorf("the router is %s", got)
		}
		if got := w.systemctl(false, "show", "--property=CapabilityBoundingSet", "--property=ProtectSystem", "--property=NoNewPrivileges", router); got != "CapabilityBoundingSet=\nProtectSystem=strict\nNoNewPrivileges=yes" {
			t.Errorf("the router's sandbox is %s", got)
		}
		if r := w.must(0, w.run("gate", "run", "-f", w.fleet, "--yes")); !strings.Contains(r.out, "nothing to do") {
			t.Errorf("the second run says %s", tail(r.out))
		}
	})
	t.Run("killed, they come back", func(t *testing.T) {
		was := map[string]process.Record{}
		for _, name := range []string{"standby", "sidecar-e2"} {
			was[name] = w.record(name)
			w.systemctl(false, "kill", "--signal=KILL", "narwhal-sandbox-"+name+".service")
		}
		for name, r := range was {
			w.comesBack(name, r)
		}
	})
	t.Run("after a loss of power the router serves", func(t *testing.T) {
		was := w.record("router")
		w.host.cut()
		w.host.start()
		w.comesBack("router", was)
		await(t, "the router to serve", w.serves)
		if now := w.record("router"); now.BootID == was.BootID || now.Launch != was.Launch {
			t.Errorf("the router is %s of launch %.12s, was %s of launch %.12s", now.Identity, now.Launch, was.Identity, was.Launch)
		}
		r := w.run("gate", "status", "-f", w.fleet, "--live")
		if !strings.Contains(r.out, "host "+w.id+" was rebooted") || !strings.Contains(r.out, "router was restarted") || strings.Contains(r.out, "launched differently") {
			t.Errorf("status says %s", tail(r.out))
		}
		seq, now := w.latest().Seq, w.record("router")
		if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
			t.Errorf("gates are %s", got)
		}
		made := made(t, w.latest(), seq)
		for _, key := range []string{"B/manager/" + w.id, "C/live/e2", "E/sidecar/e2", "G/ready", "G/trial"} {
			if !slices.Contains(made, key) {
				t.Errorf("%s was not made again", key)
			}
		}
		for _, key := range []string{"B/release/" + w.id, "B/units/" + w.id, "C/live/e0", "E/statement/e1", "F/profile/e0", "G/router"} {
			if slices.Contains(made, key) {
				t.Errorf("%s was made again", key)
			}
		}
		if r := w.record("router"); r.Identity != now.Identity {
			t.Errorf("the router that had come back was replaced: %s, was %s", r.Identity, now.Identity)
		}
	})
	t.Run("as units of a user", func(t *testing.T) { userUnits(t, w) })
	t.Run("rollback takes the units back", func(t *testing.T) {
		back := w.reply(w.must(0, w.run("gate", "rollback", "--to", "A", "-f", w.fleet, "--yes", "--format", "json")))
		if len(back.Data.Residue) != 0 || !slices.Contains(back.Data.Stopped, "router") || !slices.Contains(back.Data.Stopped, "standby") {
			t.Errorf("stopped %v, left %v", back.Data.Stopped, back.Data.Residue)
		}
		for _, dir := range []string{filepath.Join(w.host.dir, "root"), filepath.Join(w.root, "units")} {
			if left := filesBelow(t, dir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	})
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
}

// userUnits hands router and standby over to the user's manager: without lingering the gate
// refuses; with it both come back after a loss of power.
func userUnits(t *testing.T, w *unitWorld) {
	w.rewrite(func(doc map[string]any) {
		doc["deploy"].(map[string]any)["hosts"].(map[string]any)[w.id].(map[string]any)["supervise"] = "user"
	})
	refused := w.gates()
	if refused.code != 1 || !strings.Contains(refused.out, "unit-lingering-off") || !strings.Contains(refused.out, "unit-manager-unreachable") {
		t.Fatalf("without lingering: exit %d, %s", refused.code, tail(refused.out))
	}
	if !w.serves() {
		t.Error("the router that served was ended")
	}
	w.host.write("var/linger/root", "")
	w.systemctl(false, "start", "user-manager.service")
	seq, before := w.latest().Seq, w.standing()
	if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	if made := made(t, w.latest(), seq); slices.Contains(made, "C/live/e2") || slices.Contains(made, "F/profile/e2") || !slices.Contains(made, "G/router") {
		t.Errorf("made again %v", made)
	}
	if left := filesBelow(t, filepath.Join(w.host.dir, "etc")); len(left) != 0 {
		t.Errorf("units of the system are left: %v", left)
	}
	if s := w.standing(); !s.Standing || s.Epoch != before.Epoch+2 {
		t.Errorf("the place was not handed over and given back: %+v, was %+v", s, before)
	}
	was := map[string]process.Record{"router": w.record("router"), "standby": w.record("standby")}
	for name, r := range was {
		if got := w.systemctl(true, "show", "--property=MainPID", "--value", "narwhal-sandbox-"+name+".service"); got != fmt.Sprint(r.PID) {
			t.Errorf("the process of %s's unit is %s, recorded is %d", name, got, r.PID)
		}
	}
	w.host.cut()
	w.host.start()
	w.comesBack("router", was["router"])
	w.comesBack("standby", was["standby"])
	// The router follows the standby no more, which would leave both waiting.
	await(t, "the router to serve", w.serves)
}

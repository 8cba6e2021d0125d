package engines

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/engines/cause"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// alone checks one engine by itself.
func (s seen) alone(v gates.View) []record.Finding {
	var out []record.Finding
	for _, t := range s.ports.Taken {
		out = append(out, s.finding("port-taken", "ports", "a free "+t.Address, t.Why, "stop what listens there (ss -ltnp on the host shows it) or give the engine another port"))
	}
	out = append(out, s.launched(v.Fleet)...)
	out = append(out, s.joined(v)...)
	if !s.has["live"] {
		return out
	}
	if !s.live.Ready && len(s.live.Models) > 0 && !serves(s.live.Models, v.Fleet.Model) {
		return append(out, s.wrongModel(v.Fleet.Model))
	}
	if !s.live.Ready {
		return append(out, s.notReady())
	}
	out = append(out, s.identity()...)
	if s.has["listener"] {
		out = append(out, s.listening(s.listen)...)
	}
	if s.has["container"] {
		out = append(out, s.contained(v.Fleet)...)
	}
	if !serves(s.live.Models, v.Fleet.Model) {
		out = append(out, s.wrongModel(v.Fleet.Model))
	}
	if c := v.Fleet.EngineContract; c != nil && c.EngineVersion != "" && c.EngineVersion != s.live.Version {
		out = append(out, s.finding("version-differs", "live", "version "+c.EngineVersion, s.live.Version, "install that version or change engine_contract.engine_version"))
	}
	out = append(out, s.alikeWithin()...)
	if s.has["cache"] && s.cache.BytesPerBlock <= 0 {
		out = append(out, s.finding("cache-size-unknown", "cache", "the bytes of a block", "nothing that tells them", "an engine that shows no cache geometry needs engine_contract with kv_heads, head_size, hidden_layers, model_dtype and kv_cache_dtype"))
	}
	return out
}

// alikeWithin checks that the ranks of an engine have one layout.
func (s seen) alikeWithin() []record.Finding {
	var out []record.Finding
	for _, r := range s.cache.Ranks {
		if r.BlockSize != 0 && r.BlockSize != s.cache.BlockSize || r.Dtype != "" && r.Dtype != s.cache.Dtype {
			out = append(out, s.finding("cache-ranks-differ", "cache", layout(s.cache.CacheLayout), fmt.Sprintf("%d tokens a block, %s, on rank %s", r.BlockSize, r.Dtype, r.Name),
				"the ranks of one engine run different configurations: launch the engine anew"))
		}
	}
	return out
}

func (s seen) wrongModel(want string) record.Finding {
	return s.finding("model-differs", "live", "model "+want, names(s.live.Models), "set --served-model-name in the launch, or model in the fleet file")
}

// launched checks that the host ran what the fleet file says, argument by argument.
func (s seen) launched(f fleet.Fleet) []record.Finding {
	var out []record.Finding
	for rank, l := range s.ranks {
		r, err := f.ResolveRank(s.iid, rank)
		if err != nil || l.Spec == "" {
			continue
		}
		if spec, err := Spec(f, r); err == nil && spec.Digest() != l.Spec && spec.Launch == l.Launch {
			x := s.finding("launch-differs", "launch", fmt.Sprintf("command %.12s", spec.Digest()), fmt.Sprintf("command %.12s of rank %d", l.Spec, rank), "narwhal gate rollback --to B stops it, and the next run launches it anew; what was run is in run/"+process.DirLaunches+" of the host")
			x.Host = r.Host
			out = append(out, x)
		}
	}
	return out
}

// startSlack is how much earlier than its launch an engine may say that it started: clocks
// are stepped.
const startSlack = time.Minute

// identity checks that who answers is who was launched. A restart by the same launch is
// the same engine; one that started before the launch is somebody else's. SGLang does not
// tell when it started.
func (s seen) identity() []record.Finding {
	var out []record.Finding
	if !s.has["launch"] {
		return nil
	}
	const hint = "stop what else listens on the engine's address, then narwhal gate run --again C"
	if s.live.Launch != s.launch.Launch {
		out = append(out, s.finding("engine-identity", "live", fmt.Sprintf("launch %.12s", s.launch.Launch), fmt.Sprintf("launch %.12s, pid %d", s.live.Launch, s.live.PID), hint))
	}
	if launched := float64(s.launch.Started.UnixNano()) / 1e9; s.live.ProcessStart != 0 && s.live.ProcessStart < launched-startSlack.Seconds() {
		out = append(out, s.finding("engine-identity", "live", fmt.Sprintf("a process started at %.0f (seconds since 1970)", launched), fmt.Sprintf("one started at %.0f", s.live.ProcessStart), hint))
	}
	return out
}

// notReady names the cause that the engine's log tells, else quotes the end of the log.
func (s seen) notReady() record.Finding {
	if f := s.live.Cause; f != nil {
		if c, ok := cause.ByCode(f.Code); ok {
			hint := fmt.Sprintf("%s (line %d of %s: %s)", c.Hint, f.Number, logName(s.iid), engine.Printable(f.Line, 400))
			if f.Number == 0 {
				hint = fmt.Sprintf("%s (%s)", c.Hint, engine.Printable(f.Line, 400))
			}
			out := s.finding("engine-not-ready", "live", "an engine that generates", c.Says+"; "+s.live.Reason, hint)
			out.Code = c.Code
			return out
		}
	}
	return s.finding("engine-not-ready", "live", "an engine that generates", s.live.Reason, endOf(s.live.Log))
}

// joined names the causes that the logs of further ranks tell.
func (s seen) joined(v gates.View) []record.Finding {
	var out []record.Finding
	for rank := 1; rank <= v.Fleet.Workers(s.iid); rank++ {
		w := seen{iid: s.iid, host: v.Fleet.Deploy.Engines[s.iid].Workers[rank-1]}
		if v.Decode(joinedKey(s.iid, rank), &w.live) != nil || w.live.Ready {
			continue
		}
		f := w.notReady()
		f.Evidence = string(joinedKey(s.iid, rank))
		f.Message = fmt.Sprintf("rank %d: %s", rank, f.Message)
		f.Hint = strings.Replace(f.Hint, logName(s.iid), path.Join(gates.DirRun, fleet.RankProcess(s.iid, rank)+".log"), 1)
		out = append(out, f)
	}
	return out
}

func logName(iid string) string { return path.Join(gates.DirRun, ProcessName(iid)+".log") }

func endOf(log string) string {
	if log == "" {
		return "look at the engine's log in its host's run folder"
	}
	return "the end of its log: " + lastLine(log)
}

func lastLine(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return engine.Printable(lines[len(lines)-1], 200)
}

// listener checks that the launched process is who listens.
func (s seen) listening(listen string) []record.Finding {
	if !s.listener.Known {
		if s.listener.Why == "" || strings.Contains(s.listener.Why, process.ErrNoProc.Error()) {
			return nil
		}
		return []record.Finding{s.finding("listener-unproven", "listener", "the launched process behind "+listen, s.listener.Why, "narwhal gate run --again C")}
	}
	var out []record.Finding
	for _, k := range s.listener.Sockets {
		switch {
		case k.By != "":
		case k.Inode == 0 && k.Address == listen:
			out = append(out, s.finding("listener-missing", "listener", "a socket that listens on "+k.Address, "none, though something answers there",
				"the engine's url passes a proxy or another network namespace: give the address on which the engine itself listens"))
		case k.Inode == 0: // a side channel that this engine does not open
		case k.Hidden:
			out = append(out, s.finding("listener-unproven", "listener", "the launched process behind "+k.Address, fmt.Sprintf("socket %d of a process that the SSH user may not look into", k.Inode),
				"connect as the user that runs the engine, or as root"))
		default:
			out = append(out, s.finding("listener-foreign", "listener", "the launched process behind "+k.Address, fmt.Sprintf("pid %d (%s), which it did not start", k.PID, k.Program),
				"stop that process, then narwhal gate run --again C"))
		}
	}
	return out
}

package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

type object = map[string]any

// write leaves the layout and the fleet file in the folder. A fleet file that is there
// stays as its user changed it, unless the hosts have other addresses now.
func (s *Sandbox) write(cfg Config) error {
	b, err := json.MarshalIndent(layout{s.Hosts}, "", "  ")
	if err != nil {
		return fmt.Errorf("write sandbox: %w", err)
	}
	remembered, readErr := os.ReadFile(filepath.Join(s.Dir, "layout.json"))
	if err := atomicfile.Write(filepath.Join(s.Dir, "layout.json"), b, 0o600); err != nil {
		return fmt.Errorf("write sandbox: %w", err)
	}
	if _, err := os.Stat(s.Fleet); err == nil && readErr == nil && string(remembered) == string(b) {
		return nil
	}
	doc, err := json.MarshalIndent(s.document(cfg), "", "  ")
	if err != nil {
		return fmt.Errorf("write fleet file: %w", err)
	}
	if err := atomicfile.Write(s.Fleet, append(doc, '\n'), 0o600); err != nil {
		return fmt.Errorf("write fleet file: %w", err)
	}
	return nil
}

// mesh is how many engines hand over to each other; of more each does to the next one.
const mesh = 16

// atOnce hosts at most are measured at once, and while their engines decode only in a fleet of no
// more: all share this machine. Hosts that start engines are no more at once either.
const atOnce = 8

// document is the sandbox's fleet: simulated engines, those of the first half of the hosts
// prefill.
func (s *Sandbox) document(cfg Config) object {
	hosts, places := object{}, object{}
	var engines []object
	for i, h := range s.Hosts {
		hosts[h.ID] = object{
			"address": "127.0.0.1", "port": h.Ports.SSH, "user": "sandbox", "host_keys": []string{h.HostKey}, "identity": "file:keys/ssh",
			"root": h.Root, "fabric_port": h.Ports.Fabric, "ssh_config": false,
		}
		role := "decode"
		if i < (len(s.Hosts)+1)/2 && len(s.Hosts) > 1 {
			role = "prefill"
		}
		for _, p := range h.Ports.Engines() {
			iid := fmt.Sprintf("e%d", len(engines))
			engines = append(engines, object{
				"iid": iid, "role": role, "url": fmt.Sprintf("http://127.0.0.1:%d", p.Engine),
				"attestation_url": fmt.Sprintf("http://127.0.0.1:%d/v1/attestation", p.Sidecar),
			})
			places[iid] = object{"host": h.ID, "ports": object{"side_channel": p.Side}}
		}
	}
	secrets := object{}
	for _, name := range cfg.Secrets {
		secrets[name] = "env:" + name
	}
	deploy := object{
		"name": "sandbox", "hosts": hosts, "engines": places, "defaults": object{"launch": "simulated"},
		"launch":  object{"simulated": object{"kind": "simulated", "simulated": s.model(), "ready_within": "30s", "stop_within": "10s", "secrets": secrets}},
		"router":  object{"host": s.Hosts[0].ID, "listen": fmt.Sprintf("127.0.0.1:%d", s.Hosts[0].Ports.Router)},
		"fabric":  object{"prompt_tokens": 1024, "handoffs_per_s": 1, "sample": "200ms", "streams": 1},
		"profile": object{"prefill_tokens": []int{256, 1024, 2048}, "prefill_repeats": 3, "decode_requests": []int{1, 6, 20}, "decode_tokens": []int{64, 2048}, "output_tokens": 16, "pair_tokens": 256},
		"trial":   object{"rates": []float64{8}, "requests": 96, "attainment": 0.8, "trace": "azure-conv", "max_input_tokens": 1500, "max_output_tokens": 40},
		"policy":  object{"max_clock_offset": "10s", "min_disk_free": "64MiB"},
		"sign":    object{"key": "file:" + cfg.Operator, "trust": []string{"file:" + cfg.Operator + ".pub"}},
	}
	if len(s.Hosts) > atOnce {
		deploy["fabric"].(object)["at_once"], deploy["fabric"].(object)["under_decode"] = atOnce/2, false
		deploy["limits"] = object{"fan_out": atOnce}
	}
	if len(engines) > mesh {
		deploy["profile"].(object)["pairs"] = "ring"
	}
	return object{
		"schema": "narwhal.fleet", "schema_version": 2, "model": "narwhal-sim", "engines": engines,
		"slo":        object{"ttft_s": 1.0, "tpot_s": 0.06},
		"controller": s.controller(),
		"recovery":   object{"health": object{"min_samples": 3, "window_s": 30}},
		"profiles":   object{"max_decode_fit_mape": 0.25, "max_decode_cv_mape": 0.5},
		"engine":     object{"first_token_timeout_s": 5.0, "tokenize": false, "chars_per_token": 4.0},
		"deploy":     deploy,
	}
}

// controller reacts within seconds, so that a person can watch it.
func (s *Sandbox) controller() object {
	return object{
		"monitor_interval_s": 0.5, "min_prefill": 1, "min_decode": min(1, len(s.Hosts)),
		"thresholds": object{"expand": 1.0, "shrink": 0.5, "cooldown_s": 3.0, "dwell_s": 2.0, "sustained_intervals": 2},
		"reactive": object{
			"window_s": 8.0, "step_s": 1.0, "confirmations": 2, "min_arrivals": 5, "evidence_span_s": 3.0, "evidence_max_span_s": 6.0, "evidence_min_arrivals": 5,
			"movement_margin": 0.25,
		},
	}
}

// model is the latency of the simulated engines, in seconds.
func (s *Sandbox) model() object {
	return object{
		"prefill_a_s": 0.004, "prefill_b_s": 0.00008, "prefill_c_s": 0.0, "decode_d_s": 0.012, "decode_e_s": 0.0015, "decode_f_s": 0.0000002,
		"jitter": 0.02, "handshake_s": 0.02, "transfer_s": 0.001, "transfer_gbps": 10.0, "block_size": 16, "blocks": 8192, "max_model_len": 16384,
		"max_num_seqs": 64, "max_batched_tokens": 4096, "failure_control": true,
	}
}

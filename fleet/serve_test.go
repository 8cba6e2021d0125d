package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func served(backend string) Fleet {
	return Fleet{
		Model: "tern-7b", Engine: Backend{Backend: backend, EngineAPIKeyEnv: "THE_KEY"},
		Engines: []Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}, {IID: "d0", URL: "http://[2001:db8::12]:8101"}},
		Deploy: &Deploy{
			Hosts: map[string]Host{"h1": {Root: "/opt/n", Address: "192.0.2.11"}, "h2": {Root: "/opt/n", Address: "192.0.2.12", FabricAddress: "10.0.0.2"}},
			Engines: map[string]Place{
				"p0": {Host: "h1", Launch: "l", GPUs: []string{"0", "1"}},
				"d0": {Host: "h1", Launch: "l", GPUs: []string{"2"}, Workers: []string{"h2"}, Ports: &Ports{SideChannel: 5601, UCX: "46000-46009", Rendezvous: 29500}},
			},
			Launch: map[string]Launch{"l": {
				Kind: LaunchProcess, ModelDir: "/models/tern-7b", Env: map[string]string{"UCX_LOG_LEVEL": "info"}, Ports: Ports{SideChannel: 5600, UCX: "45000-45009"},
				Serve: &Serve{Dtype: "bfloat16", KVCacheDtype: "auto", BlockSize: 128, TensorParallel: 2, LeaseS: 30, Transport: "tcp", NetDevices: "eth1", GPUTLS: "cuda",
					Visibility: "CUDA_VISIBLE_DEVICES", Args: []string{"--max-model-len", "16384"}},
			}},
		},
	}
}

// value returns what follows an option.
func value(argv []string, option string) string {
	if i := slices.Index(argv, option); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

func TestServeVLLM(t *testing.T) {
	f := served(BackendVLLM)
	r, err := f.Resolve("p0")
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]string{
		"-m": "vllm.entrypoints.openai.api_server", "--model": "/models/tern-7b", "--served-model-name": "tern-7b", "--host": "192.0.2.11", "--port": "8100",
		"--tensor-parallel-size": "2", "--dtype": "bfloat16", "--kv-cache-dtype": "auto", "--block-size": "128", "--max-model-len": "16384", "--nnodes": "",
	} {
		if got := value(r.Argv, option); got != want {
			t.Errorf("%s is %q, want %q", option, got, want)
		}
	}
	const transfer = `{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_load_failure_policy":"fail","kv_connector_extra_config":{"backends":["UCX"],"enforce_handshake_compat":true,"kv_lease_duration":30}}`
	if got := value(r.Argv, "--kv-transfer-config"); got != transfer || !json.Valid([]byte(got)) {
		t.Errorf("transfer %s", got)
	}
	if want := map[string]string{
		"UCX_TLS": "tcp,sm,self,cuda", "UCX_NET_DEVICES": "eth1", "UCX_TCP_PORT_RANGE": "45000-45009", "UCX_LOG_LEVEL": "info", "NIXL_HOST_IP": "192.0.2.11",
		"VLLM_NIXL_SIDE_CHANNEL_HOST": "192.0.2.11", "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600", "CUDA_VISIBLE_DEVICES": "0,1",
	}; !maps.Equal(r.Env, want) {
		t.Errorf("variables %v", r.Env)
	}
	if r.Secrets["VLLM_API_KEY"] != "env:THE_KEY" || strings.Contains(strings.Join(r.Argv, " "), "THE_KEY") {
		t.Errorf("secrets %v, argv %v", r.Secrets, r.Argv)
	}
	if f.Deploy.Launch["l"].Secrets != nil {
		t.Error("resolving changed the document")
	}
}

func TestServeRanks(t *testing.T) {
	for backend, want := range map[string][2]map[string]string{
		BackendVLLM: {
			{"--nnodes": "2", "--node-rank": "0", "--master-addr": "2001:db8::12", "--master-port": "29500", "--host": "2001:db8::12"},
			{"--nnodes": "2", "--node-rank": "1", "--master-addr": "2001:db8::12", "--master-port": "29500", "--host": "10.0.0.2"},
		},
		BackendSGLang: {
			{"--nnodes": "2", "--node-rank": "0", "--dist-init-addr": "[2001:db8::12]:29500"},
			{"--nnodes": "2", "--node-rank": "1", "--dist-init-addr": "[2001:db8::12]:29500"},
		},
	} {
		f := served(backend)
		digests := map[string]bool{}
		for rank, options := range want {
			r, err := f.ResolveRank("d0", rank)
			if err != nil || r.Host != []string{"h1", "h2"}[rank] {
				t.Fatalf("%s: %+v, %v", backend, r, err)
			}
			for o, v := range options {
				if got := value(r.Argv, o); got != v {
					t.Errorf("%s rank %d: %s is %q, want %q", backend, rank, o, got, v)
				}
			}
			if got := slices.Contains(r.Argv, "--headless"); got != (backend == BackendVLLM && rank == 1) {
				t.Errorf("%s rank %d: headless is %t", backend, rank, got)
			}
			if r.Env["CUDA_VISIBLE_DEVICES"] != "2" {
				t.Errorf("%s rank %d: %v", backend, rank, r.Env)
			}
			digests[r.Digest()] = true
		}
		if len(digests) != 2 {
			t.Errorf("%s: ranks share a digest", backend)
		}
	}
	f := served(BackendVLLM)
	for _, rank := range []int{-1, 2} {
		if _, err := f.ResolveRank("d0", rank); err == nil {
			t.Errorf("rank %d is resolved", rank)
		}
	}
}

func TestServeSGLang(t *testing.T) {
	f := served(BackendSGLang)
	s := *f.Deploy.Launch["l"].Serve
	s.Transport, s.NetDevices, s.Args = "rdma", "mlx5_0", []string{"--max-running-requests=64", "--disable-radix-cache"}
	l := f.Deploy.Launch["l"]
	l.Serve = &s
	f.Deploy.Launch["l"] = l
	r, err := f.Resolve("p0")
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]string{
		"-m": "sglang.launch_server", "--model-path": "/models/tern-7b", "--tp-size": "2", "--page-size": "1", "--disaggregation-mode": "prefill",
		"--disaggregation-transfer-backend": "mooncake", "--disaggregation-bootstrap-port": "5600", "--disaggregation-ib-device": "mlx5_0", "--max-running-requests": "",
	} {
		if got := value(r.Argv, option); got != want {
			t.Errorf("%s is %q, want %q", option, got, want)
		}
	}
	if r.Env["MOONCAKE_PROTOCOL"] != "" || r.Env["SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"] != "30" || r.Env["UCX_TLS"] != "" || len(r.Secrets) != 0 {
		t.Errorf("variables %v, secrets %v", r.Env, r.Secrets)
	}
	if !slices.Contains(r.Argv, "--enable-pd-role-switch") {
		t.Errorf("argv %v", r.Argv)
	}
}

func TestArgumentFault(t *testing.T) {
	for line, want := range map[string]string{
		"--max-model-len 16384":                        "",
		"--max-model-len=16384 --enforce-eager":        "",
		"--gpu-memory-utilization 0.9 --enforce-eager": "",
		"--load-format --enforce-eager":                "", // a value, whatever it looks like
		"--max-model-len":                              "has no value",
		"--api-key x":                                  "not allowed",
		"--kv-transfer-config {}":                      "not allowed",
		"--block-size 16":                              "not allowed",
		"--enforce-eager=true":                         "not allowed",
		"--enforce-eager --enforce-eager":              "given twice",
		"--max-model-len 1 --max-model-len=2":          "given twice",
		"-h":                                           "not allowed",
		"loose":                                        "not allowed",
	} {
		args := strings.Fields(line)
		var got string
		for i := range args {
			if got = ArgumentFault(BackendVLLM, args, i); got != "" {
				break
			}
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if ArgumentFault("other", []string{"--x"}, 0) == "" {
		t.Error("another backend has arguments")
	}
}

// TestArgumentsAreListed: whatever arguments pass, each is on the list or follows one with a value.
func TestArgumentsAreListed(t *testing.T) {
	list := ServeArguments[BackendVLLM]
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(list.Values), rapid.SampledFrom(list.Flags), rapid.SampledFrom([]string{"x", "--api-key", "-O3", "=", ""})), 1, 6).Draw(t, "args")
		for i := range args {
			if ArgumentFault(BackendVLLM, args, i) != "" {
				return
			}
		}
		for i := 0; i < len(args); i++ {
			switch {
			case slices.Contains(list.Flags, args[i]):
			case slices.Contains(list.Values, args[i]) && i+1 < len(args):
				i++
			default:
				t.Fatalf("%q passed in %q", args[i], args)
			}
		}
	})
}

func TestVariableFault(t *testing.T) {
	for name, ok := range map[string]bool{"UCX_LOG_LEVEL": true, "VLLM_LOGGING_LEVEL": true, "LD_LIBRARY_PATH": true, "UCX_TLS": false, "VLLM_API_KEY": false,
		"LD_PRELOAD": false, "CUDA_VISIBLE_DEVICES": false, "VLLM_SERVER_DEV_MODE": false, "": false} {
		if got := VariableFault(BackendVLLM, name); (got == "") != ok {
			t.Errorf("%s: %q", name, got)
		}
	}
}

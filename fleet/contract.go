package fleet

// contractField is one field of a contract: whether SGLang attests it (vLLM attests
// all), and whether it holds a value: text, a number above 0, or a flag.
type contractField struct {
	name   string
	sglang bool
	isSet  bool
	isNull bool // unset, or a flag that is false
}

func (c Contract) fields() []contractField {
	text := func(name string, sglang bool, s string) contractField {
		return contractField{name, sglang, s != "", s == ""}
	}
	count := func(name string, sglang bool, n int) contractField {
		return contractField{name, sglang, n > 0, n == 0}
	}
	flag := func(name string, b *bool) contractField {
		return contractField{name, false, b != nil, b == nil || !*b}
	}
	return []contractField{
		text("engine_version", true, c.EngineVersion),
		text("transfer_version", true, c.TransferVersion),
		count("connector_version", false, c.ConnectorVersion),
		text("model_architecture", true, c.ModelArchitecture),
		text("model_dtype", true, c.ModelDtype),
		count("kv_heads", true, c.KVHeads),
		count("head_size", true, c.HeadSize),
		count("hidden_layers", true, c.HiddenLayers),
		text("attention_backend", true, c.AttentionBackend),
		text("kv_cache_dtype", true, c.KVCacheDtype),
		flag("cross_layers_blocks", c.CrossLayersBlocks),
		flag("hybrid_kv_cache_manager", c.HybridKVCacheManager),
		text("connector", true, c.Connector),
		text("kv_role", false, c.KVRole),
		text("transfer_mode", false, c.TransferMode),
		text("speculative_config", true, c.SpeculativeConfig),
		flag("enforce_handshake_compat", c.EnforceHandshakeCompat),
	}
}

// Missing lists the fields that keep the contract from being complete for a backend:
// every field that the backend attests must hold a value, image_digest apart.
func (c Contract) Missing(backend string) []string {
	var out []string
	for _, f := range c.fields() {
		if (backend != "sglang" || f.sglang) && !f.isSet {
			out = append(out, f.name)
		}
	}
	return out
}

// Unattested lists the fields that hold a value although the backend does not attest them.
func (c Contract) Unattested(backend string) []string {
	var out []string
	for _, f := range c.fields() {
		if backend == "sglang" && !f.sglang && !f.isNull {
			out = append(out, f.name)
		}
	}
	return out
}

// Fingerprint is the first 16 hexadecimal digits of the contract's canonical digest.
func (c Contract) Fingerprint() string {
	d, err := Digest(c)
	if err != nil {
		return "" // plain texts, numbers and flags always have a canonical form
	}
	return d[len("sha256:") : len("sha256:")+16]
}

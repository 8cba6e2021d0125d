package redact

import (
	"strings"
	"testing"
)

func TestNamesThatHoldSecrets(t *testing.T) {
	names := `password Password PASSWORD db_password dbpassword passwd passphrase user.password spring.datasource.password secret client_secret
		clientSecret SECRET_KEY secretKey secrets MY_SECRETS credential credentials aws_credentials token access_token accessToken HF_TOKEN hfToken HFTOKEN
		hf-token auth_token refresh_token bearer_token id_token x-auth-token session_token API_TOKEN github.token api_tokens access_tokens api_key apikey
		apiKey X-Api-Key x-api-key API_KEY OPENAI_API_KEY NARWHAL_ENGINE_KEY access_key private_key privateKey signing_key ssh_key master_key engine_key
		encryption_key api_keys Authorization authorization proxy-authorization Proxy-Authorization HTTP_AUTHORIZATION cookie set-cookie Set-Cookie
		HF_TOKEN_VALUE token_value key_pem private_key_data SIGNING_KEY_PROD MYSQL_PWD config/api_key`
	for _, n := range strings.Fields(names) {
		if !Sensitive(n) {
			t.Errorf("%s is not sensitive", n)
		}
	}
}

func TestNamesThatOnlySoundLikeSecrets(t *testing.T) {
	names := `key keys max_tokens prompt_tokens completion_tokens total_tokens cached_tokens num_tokens tokens token_ids tokenIds prompt_token_ids
		unsplit_token_ids tokens_per_s chars_per_token first_token_timeout_s FirstTokenCalibrationPath token_accounting tokenizer tokenize tokenize_timeout_s
		detokenize eos_token bos_token pad_token eos_token_id add_special_tokens stop_token_ids time_per_output_token inter_token_latency
		vllm:prompt_tokens_total vllm:time_to_first_token_seconds narwhal_tokens_total host_keys host_key HostKeys public_key publicKey public_keys
		ssh_public_key key_sha256 secret_digest token_hash key_fingerprint keyid key_id key_type engine_api_key_env passphrase_file password_file
		identity secret_names known_hosts primary_key sort_key cache_key group_key evidence_key routing_key seq_key seq_keys sequence_key kv_keys monkey
		turkey keyboard keepalive keyspace authority author block_key prefix_key role digest sha256 prev sum stale bytes media keywords
		max_model_len kv_heads num_key_value_heads query_key_value external_kv_tokens kv_capacity_tokens prefill_tokens block_tokens
		max_num_batched_tokens secret_count password_required token_limit host/alpha-1/key secret/path`
	for _, n := range strings.Fields(names) {
		if Sensitive(n) {
			t.Errorf("%s is sensitive", n)
		}
	}
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"HF_TOKEN", "hf-abcdefgh", true}, {"HF_TOKEN", "env:HF_TOKEN", false}, {"SERVICE_KEY", "/var/run/key.json", false},
		{"API_KEY", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", true}, {"MAX_TOKENS", "abc", false}, {"TOKEN", "128", false},
	} {
		if got := Holds(c.name, c.value); got != c.want {
			t.Errorf("%s=%s: %v", c.name, c.value, got)
		}
	}
}

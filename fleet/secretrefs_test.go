package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSecretRefs(t *testing.T) {
	f := Fleet{Engine: Backend{EngineAPIKeyEnv: "ENGINE_KEY"}}
	if got := f.SecretRefs(); !slices.Equal(got, []SecretRef{"env:ENGINE_KEY"}) {
		t.Errorf("without deploy: %v", got)
	}
	f.Deploy = &Deploy{
		Hosts:  map[string]Host{"a": {Password: "env:PW"}, "b": {Password: "env:PW", Passphrase: "file:pp"}},
		Launch: map[string]Launch{"x": {Secrets: map[string]SecretRef{"HF_TOKEN": "env:HF_TOKEN"}}},
		Sign:   Sign{Passphrase: "env:SIGN"},
		Router: Router{HTTP: RouterHTTP{ControlToken: "env:CONTROL"}, Lease: RouterLease{Etcd: &Etcd{Password: "file:etcd"}}},
	}
	want := []SecretRef{"env:CONTROL", "env:ENGINE_KEY", "env:HF_TOKEN", "env:PW", "env:SIGN", "file:etcd", "file:pp"}
	if got := f.SecretRefs(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSecretsPrintAsAMask formats a secret in every way, also from inside other values.
func TestSecretsPrintAsAMask(t *testing.T) {
	const value = "tell-nobody"
	s := NewSecret(value)
	hidden := struct{ inner Secret }{s}
	text := fmt.Sprintf("%v %+v %#v %s %q %v %+v %#v %v", s, s, s, s, s, hidden, hidden, hidden, []Secret{s})
	if b, err := s.MarshalJSON(); err != nil || strings.Contains(text+string(b), value) {
		t.Errorf("%s %s %v", text, b, err)
	}
	if s.Reveal() != value || s.Empty() || !(Secret{}).Empty() || (Secret{}).Reveal() != "" {
		t.Error("the value itself is lost")
	}
}

package schema

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue/ast"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func TestDefinitionsCompile(t *testing.T) {
	if _, err := newEvaluator(); err != nil {
		t.Fatal(err)
	}
}

// The definitions and the Go types name the same fields.
func TestDefinitionsMatchTypes(t *testing.T) {
	s := shape{loadDefinitions()}
	for name, v := range map[string]any{
		"#Fleet": fleet.Fleet{}, "#Engine": fleet.Engine{}, "#SharedDevice": fleet.SharedDevice{}, "#SLO": fleet.SLO{},
		"#Hardware": fleet.Hardware{}, "#Contract": fleet.Contract{}, "#Controller": fleet.Controller{}, "#Thresholds": fleet.Thresholds{},
		"#Reactive": fleet.Reactive{}, "#Serving": fleet.Serving{}, "#Backend": fleet.Backend{}, "#Recovery": fleet.Recovery{},
		"#Health": fleet.Health{}, "#Profiles": fleet.Profiles{}, "#Deploy": fleet.Deploy{}, "#Host": fleet.Host{}, "#Defaults": fleet.Defaults{},
		"#Place": fleet.Place{}, "#Launch": fleet.Launch{}, "#Ports": fleet.Ports{}, "#Simulated": fleet.Simulated{}, "#Release": fleet.Release{},
		"#Router": fleet.Router{}, "#Standby": fleet.Standby{}, "#Fabric": fleet.Fabric{}, "#Profiling": fleet.Profiling{}, "#Trial": fleet.Trial{}, "#Policy": fleet.Policy{},
		"#Monitoring": fleet.Monitoring{}, "#RouterHTTP": fleet.RouterHTTP{}, "#RouterLease": fleet.RouterLease{}, "#Etcd": fleet.Etcd{}, "#RouterJournal": fleet.RouterJournal{},
		"#Sign": fleet.Sign{}, "#Limits": fleet.Limits{}, "#Container": fleet.Container{}, "#Serve": fleet.Serve{},
	} {
		lit, ok := s.defs.syntax[name].(*ast.StructLit)
		if !ok {
			t.Errorf("%s is no struct", name)
			continue
		}
		want := structureOf(lit).names()
		var got []string
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			got = append(got, tag)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s has the fields %v, the Go type %v", name, want, got)
		}
	}
}

// Every struct takes comments, so that cue vet accepts what narwhal accepts.
func TestEveryStructIsAnnotated(t *testing.T) {
	for name, e := range loadDefinitions().syntax {
		lit, ok := e.(*ast.StructLit)
		if !ok || name == "#Annotated" {
			continue
		}
		embeds := false
		for _, d := range lit.Elts {
			if em, ok := d.(*ast.EmbedDecl); ok {
				id, _ := em.Expr.(*ast.Ident)
				embeds = embeds || id != nil && id.Name == "#Annotated"
			}
		}
		if !embeds {
			t.Errorf("%s lacks #Annotated", name)
		}
	}
}

func TestEveryFieldIsDescribed(t *testing.T) {
	s := shape{loadDefinitions()}
	for name, e := range s.defs.syntax {
		lit, ok := e.(*ast.StructLit)
		if !ok {
			continue
		}
		for _, m := range structureOf(lit).members {
			if d := s.describe(m.value); d == "" || strings.Contains(d, "another form") || strings.Contains(d, "#") {
				t.Errorf("%s.%s is described as %q", name, m.name, d)
			}
		}
	}
}

func TestRuleIDsAreUniqueSentences(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules {
		if seen[r.ID] || !strings.HasSuffix(r.Says, ".") {
			t.Errorf("rule %s is given twice or is no sentence", r.ID)
		}
		seen[r.ID] = true
	}
}

func TestExportJSONSchema(t *testing.T) {
	b, err := ExportJSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Defs map[string]struct {
			Required   []string
			Properties map[string]map[string]any
		} `json:"$defs"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if got := s.Defs["Fleet"].Required; !slices.Equal(got, []string{"schema", "schema_version", "model", "engines", "slo"}) {
		t.Errorf("Fleet requires %v", got)
	}
	role := s.Defs["Engine"].Properties["role"]
	if role["default"] != "decode" || len(role["enum"].([]any)) != 2 {
		t.Errorf("role is %v", role)
	}
	attempts := s.Defs["Serving"].Properties["max_attempts"]
	if attempts["maximum"] != 3.0 || attempts["minimum"] != 1.0 || attempts["default"] != 2.0 || attempts["type"] != "integer" {
		t.Errorf("max_attempts is %v", attempts)
	}
	var walk func(v any)
	walk = func(v any) {
		switch x := v.(type) {
		case map[string]any:
			if ref, ok := x["$ref"].(string); ok {
				if _, ok := s.Defs[strings.TrimPrefix(ref, "#/$defs/")]; !ok {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, y := range x {
				walk(y)
			}
		case []any:
			for _, y := range x {
				walk(y)
			}
		}
	}
	var all any
	_ = json.Unmarshal(b, &all)
	walk(all)
}

// fleet.schema.json is committed for editors: narwhal schema export > schema/fleet.schema.json.
func TestCommittedJSONSchema(t *testing.T) {
	want, err := ExportJSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("fleet.schema.json")
	if err != nil || string(got) != string(want) {
		t.Errorf("fleet.schema.json differs from the definitions (%v)", err)
	}
}

func TestExportCUEIsOneFile(t *testing.T) {
	text := string(ExportCUE())
	if strings.Count(text, "package schema\n") != 1 || !strings.Contains(text, "#Deploy: {") {
		t.Error("the export is not one file with every definition")
	}
}

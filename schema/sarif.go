package schema

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// GitHub writes problems as workflow commands, so that a pull request shows each at its line.
func GitHub(errors, warnings []*problem.Problem) []byte {
	var b strings.Builder
	write := func(level string, ps []*problem.Problem) {
		for _, p := range ps {
			message := p.Message
			if p.Hint != "" {
				message += "\n" + p.Hint
			}
			place := ""
			if p.File != "" {
				place = fmt.Sprintf(" file=%s,line=%d,col=%d,title=%s", githubProperty(filepath.ToSlash(p.File)), p.Line, p.Column, githubProperty(p.Rule))
			}
			fmt.Fprintf(&b, "::%s%s::%s\n", level, place, githubText(message))
		}
	}
	write("error", errors)
	write("warning", warnings)
	return []byte(b.String())
}

func githubText(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func githubProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// SARIF writes problems as a SARIF 2.1.0 log of one run, with the whole table of rules.
func SARIF(errors, warnings []*problem.Problem, version string) ([]byte, error) {
	index := map[string]int{}
	rules := make([]map[string]any, len(Rules))
	for i, r := range Rules {
		index[r.ID] = i
		rules[i] = map[string]any{
			"id": r.ID, "shortDescription": text(r.Says), "defaultConfiguration": map[string]any{"level": string(r.Severity)},
		}
	}
	results := []map[string]any{}
	collect := func(level string, ps []*problem.Problem) {
		for _, p := range ps {
			message := p.Message
			if p.Hint != "" {
				message += " (" + p.Hint + ")"
			}
			r := map[string]any{"level": level, "message": text(message)}
			if i, ok := index[p.Rule]; ok {
				r["ruleId"], r["ruleIndex"] = p.Rule, i
			}
			if p.File != "" {
				r["locations"] = []any{map[string]any{
					"physicalLocation": map[string]any{
						"artifactLocation": map[string]any{"uri": filepath.ToSlash(p.File)},
						"region":           map[string]any{"startLine": p.Line, "startColumn": p.Column},
					},
					"logicalLocations": []any{map[string]any{"fullyQualifiedName": p.Field}},
				}}
			}
			results = append(results, r)
		}
	}
	collect("error", errors)
	collect("warning", warnings)
	log := map[string]any{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []any{map[string]any{
			"tool": map[string]any{"driver": map[string]any{
				"name": "narwhal", "version": version, "informationUri": "https://github.com/narwhal-fleet/narwhal", "rules": rules,
			}},
			"columnKind": "unicodeCodePoints",
			"results":    results,
		}},
	}
	b, err := json.MarshalIndent(log, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write SARIF: %w", err)
	}
	return append(b, '\n'), nil
}

func text(s string) map[string]any { return map[string]any{"text": s} }

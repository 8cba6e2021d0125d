package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Identity of the dashboard in Grafana.
const (
	DashboardUID   = "narwhal-router"
	DashboardTitle = "Narwhal Orchestrator"
)

type object = map[string]any

// dashboard is Grafana's model of the panels.
func dashboard() ([]byte, error) {
	var panels []object
	x, y, row := 0, 0, 0
	for i, p := range Panels {
		if x+p.Width > 24 {
			x, y, row = 0, y+row, 0
		}
		panels = append(panels, p.model(i+1, x, y))
		x, row = x+p.Width, max(row, p.Height)
	}
	doc := object{
		"uid": DashboardUID, "title": DashboardTitle, "tags": []string{"narwhal"}, "schemaVersion": 39, "version": 1, "editable": true,
		"refresh": "5s", "time": object{"from": "now-15m", "to": "now"}, "timezone": "browser", "graphTooltip": 1,
		"templating": object{"list": variables()}, "annotations": object{"list": []any{}}, "links": []any{}, "panels": panels,
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return nil, fmt.Errorf("write the dashboard: %w", err)
	}
	return b.Bytes(), nil
}

var source = object{"type": "prometheus", "uid": "${DS_PROMETHEUS}"}

func variables() []object {
	all := func(name, label, query string) object {
		return object{"name": name, "label": label, "type": "query", "datasource": source, "query": object{"query": query, "refId": name}, "definition": query,
			"includeAll": true, "allValue": ".*", "multi": true, "refresh": 2, "sort": 1, "current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}}
	}
	return []object{
		{"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1, "current": object{"selected": true, "text": "narwhal", "value": SourceUID}},
		all("router", "Router", `label_values(up{job="narwhal-router"}, instance)`),
		all("iid", "Engine", `label_values(up{job="engines"}, iid)`),
	}
}

// model is one panel at its place.
func (p Panel) model(id, x, y int) object {
	defaults := object{"unit": orNone(p.Unit), "mappings": mappings(p.Words)}
	if p.Steps != nil {
		defaults["thresholds"] = thresholds(p.Steps)
		if p.Kind == series {
			defaults["custom"] = object{"thresholdsStyle": object{"mode": "line"}}
		}
	}
	m := object{"id": id, "type": p.Kind, "title": p.Title, "description": p.Says, "datasource": source, "gridPos": object{"x": x, "y": y, "w": p.Width, "h": p.Height}}
	targets, overrides := []object{}, []object{}
	for i, q := range p.Queries {
		ref := string(rune('A' + i))
		t := object{"refId": ref, "datasource": source, "expr": q.Expr, "legendFormat": q.Legend, "editorMode": "code", "range": !q.Instant, "instant": q.Instant}
		if p.Kind == table {
			t["format"] = "table"
		}
		if p.Kind == stat && !q.Instant {
			t["range"], t["instant"] = false, true
		}
		targets = append(targets, t)
		if o := q.override(p, ref); o != nil {
			overrides = append(overrides, o)
		}
	}
	m["targets"], m["fieldConfig"] = targets, object{"defaults": defaults, "overrides": overrides}
	switch p.Kind {
	case stat:
		m["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}, "colorMode": "value", "graphMode": "none", "textMode": "value_and_name"}
	case series:
		m["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case timeline:
		m["options"] = object{"mergeValues": true, "showValue": "auto", "alignValue": "left", "rowHeight": 0.8, "legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}}
	case table:
		m["options"] = object{"showHeader": true, "cellHeight": "sm"}
		m["transformations"] = p.joined()
	}
	return m
}

func orNone(unit string) string {
	if unit == "" {
		return "none"
	}
	return unit
}

// override gives a query's values their own unit and colours. In a table they are a column.
func (q Query) override(p Panel, ref string) object {
	if q.Unit == "" && q.Steps == nil {
		return nil
	}
	match := object{"id": "byFrameRefID", "options": ref}
	if p.Kind == table {
		match = object{"id": "byName", "options": q.Legend}
	}
	props := []object{}
	if q.Unit != "" {
		props = append(props, object{"id": "unit", "value": q.Unit})
	}
	if q.Steps != nil {
		props = append(props, object{"id": "thresholds", "value": thresholds(q.Steps)})
		if p.Kind == table {
			props = append(props, object{"id": "custom.cellOptions", "value": object{"type": "color-text"}})
		}
	}
	if p.Words != nil {
		props = append(props, object{"id": "mappings", "value": []any{}})
	}
	return object{"matcher": match, "properties": props}
}

// joined makes one row an engine of a table's answers.
func (p Panel) joined() []object {
	rename, hide := object{"iid": "engine"}, object{"Time": true}
	for i, q := range p.Queries {
		value, time := fmt.Sprintf("Value #%c", 'A'+i), fmt.Sprintf("Time %d", i+1)
		rename[value], hide[time] = q.Legend, true
		if q.Legend == "role" || q.Legend == "state" {
			hide[value] = true // the label says it
		}
	}
	return []object{{"id": "joinByField", "options": object{"byField": "iid", "mode": "outer"}}, {"id": "organize", "options": object{"excludeByName": hide, "renameByName": rename, "indexByName": object{}}}}
}

func thresholds(steps []Step) object {
	var list []object
	for i, s := range steps {
		step := object{"color": s.Colour, "value": s.From}
		if i == 0 {
			step["value"] = nil
		}
		list = append(list, step)
	}
	return object{"mode": "absolute", "steps": list}
}

func mappings(words []Word) []object {
	if words == nil {
		return []object{}
	}
	values := object{}
	for i, w := range words {
		values[fmt.Sprintf("%g", w.Value)] = object{"text": w.Text, "color": w.Colour, "index": i}
	}
	return []object{{"type": "value", "options": values}}
}

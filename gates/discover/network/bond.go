package network

import (
	"fmt"
	"strings"
)

// Bond is a link made of several.
type Bond struct {
	Name    string   `json:"name"`
	Mode    string   `json:"mode"`
	State   string   `json:"state"` // MII: up, down
	Active  string   `json:"active,omitempty"`
	Partner string   `json:"partner,omitempty"` // hardware address of the LACP partner
	Group   string   `json:"group,omitempty"`   // active aggregator
	Members []Member `json:"members,omitempty"`
}

// Member is one link of a bond.
type Member struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Speed    string `json:"speed,omitempty"`
	Failures string `json:"failures,omitempty"`
	Group    string `json:"group,omitempty"`
}

const maxBonds = 256

// ParseBonds reads "bond NAME" lines, each followed by that bond's /proc/net/bonding file.
func ParseBonds(lines []string) []Bond {
	var out []Bond
	for _, l := range lines {
		if name, ok := strings.CutPrefix(l, "bond "); ok && linkRE.MatchString(name) {
			if len(out) == maxBonds {
				return out
			}
			out = append(out, Bond{Name: name})
			continue
		}
		k, v, ok := strings.Cut(l, ":")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if !ok || len(out) == 0 || len(v) > 120 {
			continue
		}
		b := &out[len(out)-1]
		if k == "Slave Interface" {
			if linkRE.MatchString(v) && len(b.Members) < maxBonds {
				b.Members = append(b.Members, Member{Name: v})
			}
			continue
		}
		if n := len(b.Members); n > 0 {
			b.Members[n-1].attribute(k, v)
			continue
		}
		b.attribute(k, v)
	}
	return out
}

func (b *Bond) attribute(k, v string) {
	switch k {
	case "Bonding Mode":
		b.Mode = v
	case "MII Status":
		b.State = v
	case "Currently Active Slave":
		b.Active = v
	case "Partner Mac Address":
		b.Partner = strings.ToLower(v)
	case "Aggregator ID":
		b.Group = v
	}
}

func (m *Member) attribute(k, v string) {
	switch k {
	case "MII Status":
		m.State = v
	case "Speed":
		m.Speed = v
	case "Link Failure Count":
		m.Failures = v
	case "Aggregator ID":
		m.Group = v
	}
}

// noPartner is the hardware address of a switch that answers no LACP.
const noPartner = "00:00:00:00:00:00"

// Problems says why the bond carries less than its members could. An answer in words that
// are not known is a problem too.
func (b Bond) Problems() []string {
	var out []string
	if b.State != "up" {
		out = append(out, fmt.Sprintf("bond %s is %q", b.Name, b.State))
	}
	if len(b.Members) == 0 {
		out = append(out, "bond "+b.Name+" has no member")
	}
	for _, m := range b.Members {
		if m.State != "up" {
			out = append(out, fmt.Sprintf("member %s is %q", m.Name, m.State))
		}
	}
	if strings.Contains(b.Mode, "802.3ad") {
		if b.Partner == noPartner || b.Partner == "" {
			out = append(out, "no LACP partner answers")
		}
		for _, m := range b.Members {
			if m.State == "up" && m.Group != b.Group {
				out = append(out, fmt.Sprintf("member %s is in aggregator %s, not in the active %s", m.Name, m.Group, b.Group))
			}
		}
	}
	if strings.Contains(b.Mode, "active-backup") && (b.Active == "" || b.Active == "None") {
		out = append(out, "no member is active")
	}
	return out
}

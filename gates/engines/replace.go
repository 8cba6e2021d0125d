package engines

import (
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Stop ends the processes of engines by their recorded identities, the first rank first, so that
// the next launch is another process.
func (Gate) Stop(v gates.View, ids []string) ([]gates.Step, error) {
	var out []gates.Step
	f := v.Fleet
	for _, e := range ids {
		var before []string
		for rank := 0; rank <= f.Workers(e); rank++ {
			r, err := f.ResolveRank(e, rank)
			if err != nil {
				return nil, problem.Wrap(problem.Invalid, "launch_unresolved", "plan the end of engine "+e, err, "narwhal validate names the line")
			}
			name, root := fleet.RankProcess(e, rank), f.Deploy.Hosts[r.Host].Root
			s := gates.Step{ID: "C/stop/" + e, Title: "stop engine " + e, Host: r.Host, Engine: e, Effect: gates.Disrupt, Needs: before,
				Limit: stopWithin(r) + fleet.Duration(time.Minute),
				Argv:  gates.HostCommand(f, r.Host, "stop", gates.StopRequest{Root: root, Name: name, Within: stopWithin(r)}),
				Check: gates.HostCommand(f, r.Host, "absent", gates.StatusRequest{Root: root, Name: name})}
			if rank > 0 {
				s.ID, s.Title = fmt.Sprintf("C/stop/%s/%d", e, rank), fmt.Sprintf("stop rank %d of engine %s", rank, e)
			}
			out, before = append(out, s), []string{s.ID}
		}
	}
	return out, nil
}

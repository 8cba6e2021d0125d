package fleet

import "cmp"

// Who keeps the router, the standby and the sidecars of a host running.
const (
	// SuperviseOwn runs them apart from the session: they survive its logout, no reboot.
	SuperviseOwn = "own"
	// SuperviseUser makes them units of the SSH user's systemd manager, which outlives a logout and
	// comes back after a reboot where the user lingers.
	SuperviseUser = "user"
	// SuperviseSystem makes them units of the host's systemd manager.
	SuperviseSystem = "system"
)

// Supervise is who keeps narwhal's processes of a host running.
func (f Fleet) Supervise(host string) string {
	if f.Deploy == nil {
		return SuperviseOwn
	}
	return cmp.Or(f.Deploy.Hosts[host].Supervise, f.Deploy.Supervise, SuperviseOwn)
}

package monitoring

import (
	"fmt"
	"path"
)

// SourceUID is the data source that the dashboard's variable begins with.
const SourceUID = "narwhal-prometheus"

// sourceConfig tells Grafana where Prometheus is.
func sourceConfig(s Site) []byte {
	return fmt.Appendf(nil, `%sapiVersion: 1
datasources:
  - name: "narwhal"
    uid: %s
    type: "prometheus"
    access: "proxy"
    url: %s
    isDefault: false
    editable: false
    jsonData:
      httpMethod: "POST"
      timeInterval: %s
`, head, quoted(SourceUID), quoted("http://"+s.Prometheus), quoted(seconds(s.Scrape)))
}

// providerConfig tells Grafana where the dashboard lies.
func providerConfig(s Site) []byte {
	return fmt.Appendf(nil, `%sapiVersion: 1
providers:
  - name: "narwhal"
    type: "file"
    disableDeletion: true
    allowUiUpdates: false
    updateIntervalSeconds: 30
    options:
      path: %s
`, head, quoted(path.Join(s.Dir, path.Dir(DashboardFile))))
}

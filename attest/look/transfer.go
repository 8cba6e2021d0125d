package look

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const logPart = 4 << 20 // bytes read at either end of a log

var (
	ucxVersion  = regexp.MustCompile(`UCX\s+INFO\s+Version (\d+\.\d+\.\d+)`)
	nixlVersion = regexp.MustCompile(`(?i)nixl[^\n]{0,40}?version[:= ]+v?(\d+\.\d+[0-9a-z.]*)`)
	resolved    = regexp.MustCompile(`(?:ep_cfg\[\d+\]:|cfg#\d+)([^\n]*)`)
	lanes       = regexp.MustCompile(`\(([^)]*)\)`)
	lane        = regexp.MustCompile(`^([a-z0-9_]+)/[A-Za-z0-9_.:-]+$`)
	nixlPackage = regexp.MustCompile(`^(nixl|nixl_cu\d+|nixl_rocm\d*)-(\d[0-9a-z.]*)\.dist-info$`)
	uctModule   = regexp.MustCompile(`^libuct_([a-z0-9]+)[-.]`)
)

// transfer tells the versions of the transfer libraries and the transports that they
// resolved: from the log that the engine writes, else from what its processes have mapped.
func (r roots) transfer(family []int) Observed {
	libraries, err := r.libraries(family)
	if err != nil {
		u := unknown("read mapped libraries: %s", why(err))
		return Observed{UCX: u, NIXL: u, Transports: u}
	}
	log := r.log(family[0])
	return Observed{
		UCX:        versionOf(ucxVersion.FindStringSubmatch(log), libraries, "libuc", "UCX_LOG_LEVEL=info makes UCX log its version"),
		NIXL:       versionOf(r.nixl(log, libraries), libraries, "libnixl", "neither its log nor its package tells"),
		Transports: transports(log, libraries),
	}
}

// library is a mapped file, and where the process that mapped it has its root folder.
type library struct{ root, path string }

// libraries lists the shared objects that a family has mapped.
func (r roots) libraries(family []int) ([]library, error) {
	known := map[library]bool{}
	var out []library
	for _, pid := range family {
		b, err := read(r.of(pid, "maps"))
		if err != nil {
			return nil, err
		}
		for _, path := range mappedIn(string(b)) {
			if l := (library{r.of(pid, "root"), path}); !known[l] {
				known[l] = true
				out = append(out, l)
			}
		}
	}
	return out, nil
}

func mappedIn(page string) []string {
	var out []string
	for line := range strings.Lines(page) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.Contains(filepath.Base(line[at:]), ".so") {
			out = append(out, strings.TrimSpace(line[at:]))
		}
	}
	return out
}

// log is what a process wrote to its output, where that is a file.
func (r roots) log(pid int) string {
	var out strings.Builder
	last := ""
	for _, fd := range []string{"fd/1", "fd/2"} {
		path := r.of(pid, fd)
		to, err := os.Readlink(path)
		info, serr := os.Stat(path)
		if err != nil || serr != nil || to == last || !info.Mode().IsRegular() {
			continue
		}
		last = to
		out.WriteString(ends(path, info.Size()))
	}
	return out.String()
}

// ends reads the beginning and the end of a file.
func ends(path string, size int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, logPart))
	if err != nil || size <= logPart {
		return string(b)
	}
	tail, _ := io.ReadAll(io.NewSectionReader(f, max(logPart, size-logPart), logPart))
	return string(b) + "\n" + string(tail)
}

// nixl finds the version in the log, else in the package beside the mapped library.
func (r roots) nixl(log string, libraries []library) []string {
	if m := nixlVersion.FindStringSubmatch(log); m != nil {
		return m
	}
	for _, l := range libraries {
		dir, _, ok := strings.Cut(l.path, "/site-packages/")
		if !ok || !strings.Contains(filepath.Base(l.path), "nixl") {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(l.root, dir, "site-packages"))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if m := nixlPackage.FindStringSubmatch(e.Name()); m != nil {
				return m[1:]
			}
		}
	}
	return nil
}

func versionOf(match []string, libraries []library, prefix, hint string) Seen {
	if match != nil {
		return seen(match[1])
	}
	for _, l := range libraries {
		if strings.HasPrefix(filepath.Base(l.path), prefix) {
			return unknown("%s is loaded: %s", filepath.Base(l.path), hint)
		}
	}
	return seen()
}

// transports lists the lanes that UCX logged, as transport/device, else the transport
// modules that are loaded, as module:NAME.
func transports(log string, libraries []library) Seen {
	var out []string
	for _, m := range resolved.FindAllStringSubmatch(log, -1) {
		for _, in := range lanes.FindAllStringSubmatch(m[1], -1) {
			for word := range strings.FieldsSeq(strings.NewReplacer(";", " ", ",", " ").Replace(in[1])) {
				if lane.MatchString(word) {
					out = append(out, word)
				}
			}
		}
	}
	if len(out) > 0 {
		return seen(out...)
	}
	for _, l := range libraries {
		if m := uctModule.FindStringSubmatch(filepath.Base(l.path)); m != nil {
			out = append(out, "module:"+m[1])
		}
	}
	return seen(out...)
}

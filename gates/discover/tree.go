package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/discover/answer"
	"github.com/narwhal-fleet/narwhal/gates/discover/model"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// Checkpoints are the checkpoint folders of one host.
type Checkpoints struct {
	Trees []Tree `json:"trees"`
}

// Tree is one folder.
type Tree struct {
	Dir    string         `json:"dir"`
	Absent bool           `json:"absent,omitempty"`
	Odd    []string       `json:"odd,omitempty"`
	Model  model.Manifest `json:"manifest"`
	// Unread are files that gave no digest, Moved those whose size, time or inode changed
	// while they were read.
	Unread []string     `json:"unread,omitempty"`
	Moved  []string     `json:"moved,omitempty"`
	Config model.Config `json:"config"`
	// NoConfig says why config.json told nothing.
	NoConfig string  `json:"no_config,omitempty"`
	Cached   int     `json:"cached"` // files whose digest was known by size, time and inode
	Read     int64   `json:"read_bytes"`
	Seconds  float64 `json:"read_s"`
}

// listScript lists a folder's files and what else it holds, and prints config.json. It
// follows links, as the engine does.
func listScript(dir string) string {
	return prelude + fmt.Sprintf(listing, remote.Quote(dir), model.MaxConfig+1)
}

const listing = `cd -P %[1]s 2>/dev/null || { echo "== absent"; echo "== end"; exit 0; }
echo "== files"
if stat -L -c %%s . >/dev/null 2>&1; then find -L . -type f -exec stat -L -c '%%s %%Y %%i %%n' {} + || echo "odd ."; else find -L . -type f -exec stat -L -f '%%z %%m %%i %%N' {} + || echo "odd ."; fi 2>/dev/null
find -L . ! -type f ! -type d -exec printf 'odd %%s\n' {} + 2>/dev/null
echo "== config"; if [ -f config.json ]; then head -c %[2]d config.json; echo; fi
echo "== end"
`

// hashScript reads files whose names stand on standard input, each ended by a NUL, and
// prints their digests: as many at once as there are processors. openssl uses the
// processor's own instructions for SHA-256 where sha256sum may not.
func hashScript(dir string) string { return prelude + fmt.Sprintf(hashing, remote.Quote(dir)) }

const hashing = `cd -P %[1]s || exit 1
n=$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || echo 2)
if have openssl; then set -- openssl dgst -sha256 -r; elif have sha256sum; then set -- sha256sum; else set -- shasum -a 256; fi
xargs -0 -n 1 -P "$n" "$@" 2>/dev/null
exit 0
`

type treeArgs struct {
	Host string   `json:"host"`
	Dirs []string `json:"dirs"`
	// Anew leaves remembered digests aside.
	Anew bool `json:"anew,omitempty"`
}

func treeRuns(dirs []string) []gates.HostRun {
	var out []gates.HostRun
	for _, d := range dirs {
		out = append(out, gates.HostRun{Script: listScript(d)}, gates.HostRun{Script: hashScript(d)})
	}
	return out
}

// readTrees reads the checkpoint folders of a host. Digests of files that have not changed
// come from the last look, which lies beside the fleet's runs.
func readTrees(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
	var q treeArgs
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, fmt.Errorf("read the arguments: %w", err)
	}
	h, err := env.Host(ctx, q.Host)
	if err != nil {
		return nil, err
	}
	file := cacheFile(env.RunDir(), q.Host)
	cache := model.Cache{}
	if b, err := os.ReadFile(file); err == nil && !q.Anew {
		cache = model.ReadCache(b)
	}
	var out Checkpoints
	for _, dir := range q.Dirs {
		t, err := readTree(ctx, env, h, dir, cache)
		if err != nil {
			return nil, fmt.Errorf("read %s on host %s: %w", dir, q.Host, err)
		}
		if out.Trees = append(out.Trees, t); len(t.Unread)+len(t.Moved) == 0 {
			cache.Put(dir, t.Model.Files)
		}
	}
	if b, err := json.Marshal(cache); err == nil {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("remember digests: %w", err)
		}
		if err := atomicfile.Write(file, b, 0o600); err != nil {
			return nil, fmt.Errorf("remember digests: %w", err)
		}
	}
	return json.Marshal(out)
}

// cacheFile lies in the fleet's folder, which holds the folder of its runs.
func cacheFile(runDir, host string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(runDir)), "trees", host+".json")
}

// batchBytes is how much is read between two words to the operator.
const batchBytes = 32 << 30

func readTree(ctx context.Context, env gates.Env, h gates.Host, dir string, cache model.Cache) (Tree, error) {
	t := Tree{Dir: dir}
	before, config, there, err := list(ctx, h, dir)
	if err != nil || !there {
		t.Absent = !there
		return t, err
	}
	t.Odd = before.Odd
	if t.Config, err = model.ParseConfig(config); err != nil {
		t.NoConfig = err.Error()
	}
	missing := cache.Take(dir, before.Files)
	t.Cached = len(before.Files) - len(missing)
	sums := map[string]string{}
	for began := time.Now(); len(missing) > 0; t.Seconds = time.Since(began).Seconds() {
		n, bytes := batch(missing)
		if err := hash(ctx, h, dir, missing[:n], sums); err != nil {
			return t, err
		}
		missing, t.Read = missing[n:], t.Read+bytes
		if len(missing) > 0 {
			env.Progress(fmt.Sprintf("%s: %s read in %.0f s", dir, size(t.Read), time.Since(began).Seconds()))
		}
	}
	if t.Read > 0 {
		after, _, _, err := list(ctx, h, dir)
		if err != nil {
			return t, err
		}
		t.Moved = moved(before.Files, after.Files)
	}
	for i, f := range before.Files {
		if f.SHA256 == "" {
			before.Files[i].SHA256 = sums[f.Path]
		}
		if before.Files[i].SHA256 == "" {
			t.Unread = append(t.Unread, f.Path)
		}
	}
	t.Model = model.NewManifest(before.Files)
	return t, nil
}

func batch(files []model.File) (n int, bytes int64) {
	for n < len(files) && (n == 0 || bytes+files[n].Size <= batchBytes) {
		bytes += files[n].Size
		n++
	}
	return n, bytes
}

// list looks at a folder. The listing is bounded as every answer is.
func list(ctx context.Context, h gates.Host, dir string) (l model.Listing, config []byte, there bool, err error) {
	res, err := h.Run(ctx, remote.Command{Script: listScript(dir), Limit: treeLimit})
	if err != nil {
		return l, nil, false, err
	}
	if res.Truncated {
		return l, nil, false, errors.New("its listing is longer than the limit of output")
	}
	s, err := answer.Read(res.Stdout, "files", "config")
	if err != nil {
		return l, nil, false, err
	}
	if _, none := s["absent"]; none {
		return l, nil, false, nil
	}
	l, err = model.ParseListing(s["files"])
	return l, []byte(strings.Join(s["config"], "\n")), true, err
}

func hash(ctx context.Context, h gates.Host, dir string, files []model.File, sums map[string]string) error {
	var names strings.Builder
	for _, f := range files {
		names.WriteString("./" + f.Path + "\x00")
	}
	res, err := h.Run(ctx, remote.Command{Script: hashScript(dir), Stdin: []byte(names.String()), Limit: treeLimit})
	if err != nil {
		return err
	}
	for p, sum := range model.ParseDigests(strings.Split(string(res.Stdout), "\n")) {
		sums[p] = sum
	}
	return nil
}

// moved lists files that the second listing has otherwise, or only one of both has.
func moved(before, after []model.File) []string {
	at := map[string]model.File{}
	for _, f := range after {
		at[f.Path] = f
	}
	var out []string
	for _, f := range before {
		if !f.Same(at[f.Path]) {
			out = append(out, f.Path)
		}
		delete(at, f.Path)
	}
	for _, f := range after {
		if _, extra := at[f.Path]; extra {
			out = append(out, f.Path)
		}
	}
	return out
}

// treeLimit is how long the checkpoints of one host may take to be read.
const treeLimit = 2 * time.Hour

package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

// host collects everything of one host. A host that cannot be reached is one missing row.
func (c *collection) host(ctx context.Context, id string) {
	base := path.Join("hosts", component(id))
	if c.src.Host == nil {
		c.miss(base, "no way to reach hosts was given")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hostLimit)
	defer cancel()
	opening, opened := context.WithTimeout(ctx, openLimit)
	h, err := c.src.Host(opening, id)
	opened()
	if err != nil {
		c.miss(base, err.Error())
		return
	}
	have, known := c.describe(ctx, h, id, base+"/system.txt")
	items := expected(c.src.Fleet, id)
	for _, s := range surfaces(c.src.Fleet, id) {
		items = append(items, further(only(have, s.process+"/"), items, s.place)...)
		if !known {
			c.miss(s.place+"/files", "the host did not list its files")
		}
	}
	items = append(items, further(only(have, "run/", "attest/"), items, base)...)
	for _, it := range items {
		if known && !have[it.file] {
			if !it.optional {
				c.miss(it.path, "no such file: "+path.Join(c.root(id), it.file))
			}
			continue
		}
		it.parts = it.parts && ended(have, it.file)
		c.file(ctx, h, id, it)
	}
	for _, a := range asks(c.src.Fleet, id) {
		c.http(ctx, id, a)
	}
}

func (c *collection) root(id string) string { return c.src.Fleet.Deploy.Hosts[id].Root }

// answered notes that something came from the host.
func (c *collection) answered(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[id] = true
}

// only keeps the names below one of the folders.
func only(have map[string]bool, folders ...string) map[string]bool {
	out := map[string]bool{}
	for name := range have {
		for _, f := range folders {
			if len(name) > len(f) && name[:len(f)] == f {
				out[name] = true
			}
		}
	}
	return out
}

// describe runs the host's one script and returns the files that it lists.
func (c *collection) describe(ctx context.Context, h Host, id, to string) (map[string]bool, bool) {
	cmd := Scripts(c.src.Fleet, id)[0]
	ctx, cancel := context.WithTimeout(ctx, scriptLimit+fileLimit)
	defer cancel()
	res, err := h.Run(ctx, cmd)
	if len(res.Stdout) == 0 {
		if err == nil {
			err = errors.New("the script printed nothing")
		}
		c.miss(to, err.Error())
		return nil, false
	}
	c.answered(id)
	out := res.Stdout
	e := Entry{Path: to, Source: "script", Collector: "system", Truncated: res.Truncated || len(out) > maxScript}
	out = out[:min(len(out), maxScript)]
	if e.Truncated {
		out = dropLast(out)
	}
	if err != nil {
		e.Note = err.Error()
	}
	c.add(e, out)
	return listed(res.Stdout)
}

// file collects one file, or its end.
func (c *collection) file(ctx context.Context, h Host, id string, it item) {
	name := path.Join(c.root(id), it.file)
	if !path.IsAbs(name) {
		c.miss(it.path, fmt.Sprintf("the host's root %q is no absolute path", c.root(id)))
		return
	}
	e := Entry{Path: it.path, Source: name, Collector: "file"}
	var b []byte
	var err error
	if it.parts {
		b, err = c.tail(ctx, h, id, it)
		e.Truncated, e.Note = int64(len(b)) >= it.limit, "the end of the journal over all its files, in order"
	} else {
		get, cancel := context.WithTimeout(ctx, fileLimit)
		b, err = h.Get(get, name, it.limit)
		cancel()
		var large *remote.TooLargeError
		if errors.As(err, &large) && it.tail {
			e.Truncated = true
			b, err = c.tail(ctx, h, id, it)
		}
	}
	switch {
	case err != nil && it.optional && errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		c.miss(it.path, err.Error())
		return
	case int64(len(b)) > it.limit:
		c.miss(it.path, fmt.Sprintf("the answer has %d bytes, limit %d", len(b), it.limit))
		return
	}
	c.answered(id)
	if e.Truncated {
		b = dropFirst(b)
	}
	if it.lines {
		b = dropLast(b)
	}
	c.add(e, b)
}

func (c *collection) tail(ctx context.Context, h Host, id string, it item) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fileLimit+scriptLimit)
	defer cancel()
	res, err := h.Run(ctx, tailOf(c.root(id), it))
	return res.Stdout, err
}

// dropFirst drops the first line of an end: it may lack the name of the secret that it holds.
func dropFirst(b []byte) []byte {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil
	}
	return b[i+1:]
}

// dropLast drops an unfinished last line: it may hold a part of a secret.
func dropLast(b []byte) []byte { return b[:bytes.LastIndexByte(b, '\n')+1] }

// http asks one URL.
func (c *collection) http(ctx context.Context, id string, a ask) {
	if c.src.HTTP == nil {
		c.miss(a.path, "no way to ask URLs was given")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	b, err := c.src.HTTP(ctx, id, a.url)
	var status *StatusError
	if err != nil && !errors.As(err, &status) {
		c.miss(a.path, err.Error())
		return
	}
	c.answered(id)
	e := Entry{Path: a.path, Source: a.url, Collector: "http"}
	if err != nil {
		e.Note = err.Error()
	}
	if len(b) > maxAnswer {
		e.Truncated = true
		b = dropLast(b[:maxAnswer])
	}
	c.add(e, b)
}

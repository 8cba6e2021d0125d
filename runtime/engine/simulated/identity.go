package simulated

import (
	"crypto/rand"
	"fmt"
	"hash/fnv"
)

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// fingerprint differs between differently configured engines and is stable over a life.
func fingerprint(c Config) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%+v %s %s", c.Simulated, c.Model, c.Root)
	return fmt.Sprintf("vllm-%s-%08x", c.EngineVersion, h.Sum32())
}

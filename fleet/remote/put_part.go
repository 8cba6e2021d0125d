package remote

import (
	"path"
	"strings"

	"github.com/pkg/sftp"
)

const partEnd = ".part"

// partHead is how the names of all parts of a file begin, whatever their content.
func partHead(file string) string {
	dir, base := path.Split(file)
	if len(base) > 100 {
		base = base[:100]
	}
	return dir + ".narwhal-" + base + "."
}

// partName is the same for the same content and name, so that an interrupted upload is found again.
func partName(f File) string { return partHead(f.Path) + f.SHA256[:partDigest] + partEnd }

// partDigest is how many characters of its digest a part's name has.
const partDigest = 16

// removeParts removes what interrupted uploads of other content left beside a file that is whole.
// What cannot be removed stays: the file is good all the same.
func removeParts(c *sftp.Client, file string) {
	dir, head := path.Split(partHead(file))
	entries, err := c.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		digest, ours := strings.CutPrefix(e.Name(), head)
		if digest, part := strings.CutSuffix(digest, partEnd); ours && part && len(digest) == partDigest && e.Mode().IsRegular() {
			_ = c.Remove(dir + e.Name())
		}
	}
}

package gates

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Limits of the look at one checkpoint, in files and in folders.
const (
	maxTree      = 20000
	maxTreeDepth = 32 // of folders
)

// TreesFact identifies checkpoint folders by their files' paths, sizes, modification times
// and inodes: cheap enough to look at again on every run. Links count as what they point to;
// one that leads back to a folder above is not followed.
func TreesFact(dirs []string) string {
	var lines []string
	for _, dir := range dirs {
		lines = append(lines, treeLines(dir)...)
	}
	return FilesDigest(lines)
}

func treeLines(dir string) []string {
	var lines []string
	var walk func(rel string, above []os.FileInfo)
	walk = func(rel string, above []os.FileInfo) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil || len(above) > maxTreeDepth {
			return
		}
		for _, e := range entries {
			p := path.Join(rel, e.Name())
			st, err := os.Stat(filepath.Join(dir, p))
			switch {
			case err != nil || TreeExcludes(p) || len(lines) == maxTree:
			case st.IsDir():
				if !slices.ContainsFunc(above, func(o os.FileInfo) bool { return os.SameFile(o, st) }) {
					walk(p, append(slices.Clip(above), st))
				}
			case st.Mode().IsRegular():
				lines = append(lines, TreeLine(dir, p, st.Size(), st.ModTime().Unix(), inodeOf(st)))
			}
		}
	}
	if st, err := os.Stat(dir); err == nil {
		walk("", []os.FileInfo{st})
	}
	if len(lines) == 0 {
		return []string{dir + " absent"}
	}
	return lines
}

// TreeLine is one file of a tree's fact.
func TreeLine(dir, path string, size, mtime int64, inode uint64) string {
	return fmt.Sprintf("%s %s %d %d %d", dir, path, size, mtime, inode)
}

// TreeExcludes tells the files of a checkpoint's folder that are no part of the model: the
// README at the top and the hub client's notes.
func TreeExcludes(path string) bool {
	return path == "README.md" || strings.HasPrefix(path, ".cache/huggingface/")
}

func inodeOf(st os.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}

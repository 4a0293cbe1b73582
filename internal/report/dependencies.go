package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// dependencyDirs are directories that a package manager or a build fills. "vendor" and "target" count only from a
// number of files on.
var dependencyDirs = map[string]int{
	"node_modules": 2, ".venv": 2, "venv": 2, "__pycache__": 2, ".gradle": 2, ".m2": 2, "bower_components": 2, ".yarn": 20, ".tox": 2,
	"site-packages": 2,
	"vendor":        20, "target": 20,
}

// folded joins the files of each directory of dependencies into one line, in the place of the first.
func folded(files []workorder.FileChange) []workorder.FileChange {
	count := map[string]int{}
	for _, f := range files {
		count[dependencyDir(f.Path)]++
	}
	var list []workorder.FileChange
	at := map[string]int{}
	for _, f := range files {
		dir := dependencyDir(f.Path)
		if dir == "" || count[dir] < dependencyDirs[dir[strings.LastIndexByte(dir, '/')+1:]] {
			list = append(list, f)
			continue
		}
		i, ok := at[dir]
		if !ok {
			i = len(list)
			at[dir] = i
			list = append(list, workorder.FileChange{Path: fmt.Sprintf("%s/ (%s of dependencies or build results)", dir,
				plural(count[dir], "file", "files"))})
		}
		list[i].Added += max(f.Added, 0)
		list[i].Deleted += max(f.Deleted, 0)
	}
	return list
}

// dependencyDir returns the outermost directory of dependencies above a path; "" if none.
func dependencyDir(path string) string {
	parts := strings.Split(path, "/")
	i := slices.IndexFunc(parts[:len(parts)-1], func(p string) bool { return dependencyDirs[p] > 0 })
	return strings.Join(parts[:i+1], "/")
}

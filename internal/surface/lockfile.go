package surface

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// locked is one package of a lock file.
type locked struct {
	name, version string
	source        string   // where it comes from, as an address or a word
	sums          []string // "file=sum" or "sum"
	actual        string   // the name in what is fetched, when it is known
	line          int
	bundled       bool // has no checksum by nature
}

// lockOf is a lock file as far as it matters here.
type lockOf struct {
	packages []locked
	err      error
}

// lockReaders are the formats whose packages are compared one by one. Of others the hosts are.
var lockReaders = map[string]func(string) lockOf{
	"package-lock.json": readNPM, "npm-shrinkwrap.json": readNPM, ".package-lock.json": readNPM,
	"yarn.lock": readYarn, "pnpm-lock.yaml": readPNPM, "bun.lock": readBun,
	"poetry.lock": readTOMLLock, "uv.lock": readTOMLLock, "pdm.lock": readTOMLLock, "cargo.lock": readTOMLLock,
	"pipfile.lock": readPipfile, "composer.lock": readComposer, "go.sum": readGoSum, "go.work.sum": readGoSum,
	"gemfile.lock": readGemfile, "gems.locked": readGemfile,
}

// registries are where packages come from when base had none of them.
var registries = keys("registry.npmjs.org registry.yarnpkg.com npm pypi.org files.pythonhosted.org pypi registry+https://github.com/rust-lang/crates.io-index sparse+https://index.crates.io registry+sparse+https://index.crates.io rubygems.org github.com api.github.com codeload.github.com proxy.golang.org pub.dev repo.hex.pm cache.nixos.org registry.terraform.io jsr.io deno.land")

// checkLock compares the packages of a lock file with those of base: their sources, checksums and names.
func checkLock(c *change, s *sink) {
	if c.deleted() {
		return
	}
	if isBinary(c.new) {
		s.add(kindLock, 0, false, "a binary lock file, its sources were not compared")
		return
	}
	read := lockReaders[c.base()]
	if read == nil {
		checkHosts(c, s)
		return
	}
	head := read(c.new)
	if head.err != nil {
		s.add(kindLock, 0, true, "it cannot be read: %s", visible(head.err.Error(), maxQuote))
		checkHosts(c, s)
		return
	}
	var base lockOf
	if c.old != "" {
		base = read(c.old)
	}
	compareLocks(s, base.packages, head.packages)
}

// bases is what base says about its packages.
type bases struct {
	sources map[string]bool
	same    map[string]locked // by name, version and source's kind
	aliases map[string]bool
	sums    bool // packages have checksums
	bare    bool // some registry package has none
}

func compareLocks(s *sink, old, head []locked) {
	b := bases{sources: map[string]bool{}, same: map[string]locked{}, aliases: map[string]bool{}}
	for _, p := range old {
		b.sources[place0(p.source)] = true
		b.same[p.name+"\x00"+p.version] = p
		b.aliases[p.name+"\x00"+p.actual] = true
		b.sums = b.sums || len(p.sums) > 0
		b.bare = b.bare || len(p.sums) == 0 && !p.bundled
	}
	if len(old) == 0 {
		for r := range registries {
			b.sources[r] = true
		}
		for _, p := range head {
			b.sums = b.sums || len(p.sums) > 0
		}
	}
	for _, p := range head {
		judgeLocked(s, p, b)
	}
}

func judgeLocked(s *sink, p locked, b bases) {
	name := quote(p.name + " " + p.version)
	was, had := b.same[p.name+"\x00"+p.version]
	if src := place0(p.source); src != "" && !b.sources[src] {
		s.add(kindLock, p.line, true, "%s comes from %s, which base did not use", name, quote(p.source))
	} else if had && src != place0(was.source) && was.source != "" && src != "" {
		s.add(kindLock, p.line, true, "%s comes from %s, in base from %s", name, quote(p.source), quote(was.source))
	}
	if p.actual != "" && p.actual != p.name && !b.aliases[p.name+"\x00"+p.actual] {
		s.add(kindLock, p.line, true, "%s is in truth %s", name, quote(p.actual))
	}
	switch {
	case had && len(was.sums) > 0 && len(p.sums) == 0:
		s.add(kindLock, p.line, true, "%s has no checksum any more", name)
	case had && changedSum(was.sums, p.sums):
		s.add(kindLock, p.line, true, "%s has another checksum under the same version", name)
	case !had && len(p.sums) == 0 && !p.bundled && b.sums && !b.bare:
		s.add(kindLock, p.line, true, "%s has no checksum, all others have one", name)
	}
}

// changedSum reports whether what base pinned is something else now. More sums, of more files, are no change; neither is
// a stronger hash in the place of a weaker one.
func changedSum(was, is []string) bool {
	if len(was) == 0 || len(is) == 0 {
		return false
	}
	files := map[string]string{}
	sums := map[string]bool{}
	for _, w := range was {
		f, sum, ok := strings.Cut(w, "\x00")
		if ok {
			files[f] = sum
		}
		sums[w] = true
	}
	named, common := false, false
	for _, x := range is {
		f, sum, ok := strings.Cut(x, "\x00")
		if ok {
			named = true
			if w, had := files[f]; had && w != sum && strength(sum) <= strength(w) {
				return true
			}
		}
		common = common || sums[x]
	}
	if named || common {
		return false
	}
	return strength(strings.Join(is, " ")) <= strength(strings.Join(was, " "))
}

// strength orders hashes by the name in front of them.
func strength(sum string) int {
	switch {
	case strings.Contains(sum, "sha512"):
		return 512
	case strings.Contains(sum, "sha384"):
		return 384
	case strings.Contains(sum, "sha256"), strings.HasPrefix(sum, "h1:"):
		return 256
	case strings.Contains(sum, "sha1"):
		return 160
	case strings.Contains(sum, "md5"):
		return 128
	}
	return 200
}

// place0 is what counts of a source: the host of a registry, the repository of a git source, the address of a file.
func place0(src string) string {
	low := strings.ToLower(strings.TrimSpace(src))
	if low == "" || !strings.Contains(low, "://") && !strings.HasPrefix(low, "git@") {
		return low
	}
	low, _, _ = strings.Cut(low, "#")
	low, _, _ = strings.Cut(low, "?")
	if strings.HasPrefix(low, "git") || strings.HasPrefix(low, "ssh") || strings.Contains(low, "codeload.") {
		return strings.TrimSuffix(strings.TrimSuffix(low, "/"), ".git")
	}
	if strings.HasPrefix(low, "registry+") || strings.HasPrefix(low, "sparse+") {
		return strings.TrimSuffix(low, "/")
	}
	u, err := url.Parse(low)
	if err != nil {
		return low
	}
	if u.Scheme == "http" {
		return "http://" + u.Host
	}
	return u.Host
}

// nameInURL is the package that an address of an npm registry is of: /name/-/name-1.0.0.tgz.
func nameInURL(addr, version string) string {
	before, file, ok := strings.Cut(addr, "/-/")
	if !ok {
		return ""
	}
	u, err := url.Parse(before)
	if err != nil {
		return ""
	}
	name := strings.TrimPrefix(u.Path, "/")
	if i := strings.LastIndexByte(name, '@'); i >= 0 {
		name = name[i:]
	} else if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:] // a registry below a folder
	}
	file, _, _ = strings.Cut(file, "#")
	file, _, _ = strings.Cut(file, "?")
	file = strings.TrimSuffix(file[strings.LastIndexByte(file, '/')+1:], ".tgz")
	if v, _, _ := strings.Cut(version, "+"); v != "" && !strings.HasSuffix(file, "-"+v) {
		return fmt.Sprintf("%s in the file %s", name, file)
	}
	return name
}

// hostsIn finds addresses in a lock file of any format.
var hostsIn = pattern.New(`(?i)\b((?:git\+)?(?:https?|ssh|git)://(?:[^\s"'/@]*@)?[a-z0-9.:-]+)(/[^\s"'#)>]*)?`)

// checkHosts is for lock files whose packages are not read: new hosts in new lines.
func checkHosts(c *change, s *sink) {
	known := map[string]bool{}
	for _, m := range hostsIn.FindAllStringSubmatch(c.old, -1) {
		known[place0(m[1])] = true
	}
	if len(known) == 0 {
		for r := range registries {
			known[r] = true
		}
	}
	c.diff()
	for _, l := range c.added {
		for _, m := range hostsIn.FindAllStringSubmatch(l.text, -1) {
			if src := place0(m[1]); !known[src] && !known[strings.TrimPrefix(src, "https://")] {
				known[src] = true
				s.add(kindLock, l.n, true, "comes from %s, which base did not use", quote(m[1]))
			}
		}
	}
	if sumsChanged(c) {
		s.add(kindLock, 0, true, "a checksum changed, and no version")
	}
}

// sumLine is a line with a checksum.
var sumLine = pattern.New(`(?i)(sha(1|256|384|512)|h1:|narhash|checksum|hash)["']?\s*[:=-]|\b[0-9a-f]{64}\b`)

// sumsChanged: all that changed is checksums.
func sumsChanged(c *change) bool {
	if c.created() || len(c.added) == 0 || len(c.added) != len(c.removed) {
		return false
	}
	for i := range c.added {
		if !sumLine.MatchString(c.added[i].text) || !sumLine.MatchString(c.removed[i].text) {
			return false
		}
	}
	return true
}

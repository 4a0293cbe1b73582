package surface

import (
	"path"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// buildLine picks the lines of build descriptions that run something or fetch from somewhere.
// A version or a dependency alone is none.
var buildLine = rx(`\b(exec|execute_process|commandline|processbuilder|run_command|add_custom_command|add_custom_target|custom_target|externalproject_add|fetchcontent_declare|file\s*\(\s*download|http_archive|http_file|git_repository|genrule|repository_rule|repository_ctx|exectask|sh_binary|local_resource)\b` +
	`|<(exec|plugin|pluginrepository|repository|executable|systempath|extension|target|usingtask|import|prebuildevent|postbuildevent|antcall|java|script|shellscript|scriptfile)\b|-plugin</artifactid>` +
	`|\bapply\s+(from|plugin)|\bbuildscript\b|\bid\s*[( ]\s*["']|\binit\s*script|\bdolast\b|\bdofirst\b|tasks\.(register|create|named)|\.execute\(\)|\b(maven|ivy)\s*[({]|\bincludebuild\b|addsbtplugin|resolvers?\s*\+?\+?=|\bdistributionurl\b|shellscript\s*=`)

// trustedHosts are where builds come from by default.
var trustedHosts = []string{"services.gradle.org", "repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "maven.google.com", "dl.google.com", "www.w3.org", "maven.apache.org", "schemas.microsoft.com", "developer.android.com"}

var digits = pattern.New(`[0-9]+(\.[0-9]+)*`)

// checkBuildFile reports lines of build descriptions that run something or fetch from somewhere.
func checkBuildFile(c *change, s *sink) {
	if c.deleted() {
		return
	}
	c.diff()
	known, knownHosts := map[string]bool{}, map[string]bool{}
	for _, l := range splitLines(c.old) {
		known[digits.ReplaceAllString(strings.TrimSpace(l), "0")] = true
		knownHosts[hostOf(l)] = true
	}
	for _, h := range trustedHosts {
		knownHosts[h] = true
	}
	if strings.HasSuffix(c.base(), "-wrapper.properties") {
		wrapperChecksum(c, s)
	}
	for _, l := range meaning(c, c.added) {
		t := strings.TrimSpace(l.text)
		host := hostOf(t)
		switch why := suspicious(t); {
		case why != "":
			s.add(kindBuild, l.n, true, "%s: %s", why, quote(t))
		case known[digits.ReplaceAllString(t, "0")]:
			// Another version of what was there.
		case host != "" && !knownHosts[host] && (buildLine.MatchString(t) || strings.Contains(strings.ToLower(t), "url")):
			s.add(kindLock, l.n, !c.created(), "fetches from %s, which this file did not use: %s", visible(host, maxQuote), quote(t))
		case buildLine.MatchString(t):
			s.add(kindBuild, l.n, false, "new: %s", quote(t))
		}
	}
}

// wrapperChecksum: what the wrapper downloads is run; without its checksum nobody notices another one.
func wrapperChecksum(c *change, s *sink) {
	const sum = "sha256sum="
	if strings.Contains(strings.ToLower(c.old), sum) && !strings.Contains(strings.ToLower(c.new), sum) {
		s.add(kindBuild, 0, true, "the checksum of what is downloaded was removed")
	}
	validate := pattern.New(`(?i)validateDistributionUrl\s*=\s*false`)
	if validate.MatchString(c.new) && !validate.MatchString(c.old) {
		s.add(kindBuild, 0, true, "the address of what is downloaded is not checked any more")
	}
}

// hostOf is the host of the first URL in a line, with its scheme when that is not encrypted.
func hostOf(t string) string {
	a := sourceOf(strings.ReplaceAll(t, `\:`, ":"))
	scheme, rest, ok := strings.Cut(a, "://")
	if !ok {
		return ""
	}
	host, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if scheme == "http" && !strings.HasPrefix(host, "www.w3.org") && !strings.HasPrefix(host, "maven.apache.org") && !strings.HasPrefix(host, "schemas.microsoft.com") {
		return scheme + "://" + host
	}
	return host
}

// makeExpansion runs when the file is read, whatever the target.
var makeExpansion = pattern.New(`\$\((shell|eval)\s|!=|^-?include\s|^\.(SHELLFLAGS|ONESHELL)|^SHELL\s*[:?]?=|` + "`")

// checkRecipes reports new and changed recipes; they run when they are asked for, so a plain one is mild.
func checkRecipes(c *change, s *sink) {
	if c.deleted() {
		return
	}
	c.diff()
	n := 0
	for _, l := range meaning(c, c.added) {
		if bracket(l.text) {
			continue
		}
		n++
		switch why := suspicious(l.text); {
		case why != "":
			s.add(kindRecipe, l.n, true, "%s: %s", why, quote(l.text))
		case makeExpansion.MatchString(l.text):
			s.add(kindRecipe, l.n, false, "runs whatever the target is: %s", quote(l.text))
		default:
			s.add(kindRecipe, l.n, false, "new: %s", quote(l.text))
		}
	}
	if n == 0 && !sameMeaning(c) {
		text := "lines have another order"
		if r := meaning(c, c.removed); len(r) > 0 {
			text = "removed: " + quote(r[0].text)
		}
		s.add(kindRecipe, 0, false, "%s", text)
	}
}

// containerLine picks what of a container file matters most.
var (
	hostAccess = rx(`docker\.sock|\bprivileged\b["']?\s*[:=]\s*["']?true|--privileged|\b(pid|ipc|network_mode|network|userns_mode|uts|cgroup)["']?\s*:\s*["']?host\b|--(pid|ipc|network|net|userns)=host|cap_add|--cap-add|\bSYS_ADMIN\b|\bdevices\s*:|security_opt|unconfined|source=(/|\$\{localenv:home|~)|--mount.*type=(secret|ssh)|--security=insecure`)
	hostMount  = pattern.New(`^\s*-\s*["']?(/|~|\$\{?HOME|\.\./)[^:]*:[^:]|type=bind|^\s*source:\s*["']?(/|~|\$\{?HOME|\.\./)`)
	remoteAdd  = rx(`^\s*add\s+(--\S+\s+)*https?://`)
	fromLine   = rx(`^\s*from\s|^\s*copy\s+.*--from=|^\s*#\s*syntax\s*=|^\s*["']?image["']?\s*:`)
	runsAlways = rx(`"?(initializecommand|onbuild|postcreatecommand|oncreatecommand|updatecontentcommand|poststartcommand|postattachcommand|features|extensions|mounts|runargs|remoteuser)"?`)
)

// checkContainer reports what an image is made from, what is run in it, and what of the host it may touch.
func checkContainer(c *change, s *sink) {
	kind := c.rule.kind
	if c.deleted() {
		return
	}
	if c.ext() == ".json" && kind == kindDevcontainer {
		reportLeaves(c, s, kind, func(l leaf) bool {
			return runsAlways.MatchString(strings.Join(l.path, ".")) || hostAccess.MatchString(l.value) || l.key() == "image" || l.key() == "dockerFile" || l.key() == "dockerfile"
		})
		return
	}
	c.diff()
	images := map[string]bool{}
	for _, l := range splitLines(c.old) {
		images[unversioned(imageOf(l))] = true
	}
	n := 0
	for _, l := range meaning(c, c.added) {
		if bracket(l.text) {
			continue
		}
		n++
		switch why := suspicious(l.text); {
		case hostAccess.MatchString(l.text):
			s.add(kind, l.n, true, "access to the host: %s", quote(l.text))
		case hostMount.MatchString(l.text):
			s.add(kind, l.n, true, "a folder of the host: %s", quote(l.text))
		case why != "":
			s.add(kind, l.n, true, "%s: %s", why, quote(l.text))
		case remoteAdd.MatchString(l.text):
			s.add(kind, l.n, true, "adds what it downloads: %s", quote(l.text))
		case fromLine.MatchString(l.text):
			name := imageOf(l.text)
			s.add(kind, l.n, !c.created() && !images[unversioned(name)], "image: %s", quote(l.text))
		default:
			s.add(kind, l.n, false, "new: %s", quote(l.text))
		}
	}
	if r := meaning(c, c.removed); n == 0 && len(r) > 0 {
		s.add(kind, 0, strings.HasPrefix(strings.ToUpper(strings.TrimSpace(r[0].text)), "USER "), "removed: %s", quote(r[0].text))
	}
}

// imageOf is the image that a line names.
func imageOf(l string) string {
	f := strings.FieldsFunc(l, func(r rune) bool { return r == ' ' || r == '\t' || r == '"' || r == '\'' || r == '=' })
	for i, w := range f {
		switch strings.ToLower(w) {
		case "from", "image:", "syntax", "--from":
			for _, x := range f[i+1:] {
				if !strings.HasPrefix(x, "--") && x != "linux/amd64" {
					return strings.ToLower(x)
				}
			}
		}
	}
	return ""
}

// checkRegistry reports settings of package managers: where packages come from, and what runs beside them.
func checkRegistry(c *change, s *sink) {
	base, ext := c.base(), c.ext()
	switch {
	case base == "pnpm-workspace.yaml" || base == "lerna.json":
		reportLines(c, s, kindRegistry, true, rx(`onlybuilt|neverbuilt|dangerously|ignorescripts|registry|overrides|configdependencies|patched|hooks|pnpmfile|://|"npmclientargs"`))
	case base == "gradle.properties" || base == "settings.xml":
		reportLines(c, s, kindRegistry, true, rx(`://|proxy|java\.home|javaagent|jvmargs|<url>|<mirror|init|verification`))
	case path.Base(path.Dir(c.lower)) == "wrapper" && ext == ".properties":
		checkBuildFile(c, s)
	case base == ".bazelversion":
		reportLines(c, s, kindRegistry, false, nil)
	case ext == ".jar" || ext == ".md":
		// Told as what it is.
	default:
		reportLines(c, s, kindRegistry, false, nil)
		c.diff()
		for _, l := range meaning(c, c.added) {
			if decides.MatchString(l.text) {
				s.raise(kindRegistry, l.n, "new: %s", quote(l.text))
				return
			}
		}
	}
}

// decides are settings of package managers that decide from where packages come, or what runs.
var decides = rx(`registry|index|url|://|source|proxy|script|wrapper|linker|runner|path|plugin|command|exec|hook|strict-ssl|cafile|cert|auth|token|node-options|shell|\bgit\b|onload|unsafe|allow|trusted|extension|agent|jvm|-D\w|import|rustc|mirror|find-links|<add`)

// checkBuildScript is a script that builds run by themselves: a new one is grave, and of a changed one what starts or fetches something.
func checkBuildScript(c *change, s *sink) {
	reportLines(c, s, kindBuild, c.created() && !c.deleted(), nil)
	c.diff()
	for _, l := range meaning(c, c.added) {
		if startsSomething.MatchString(l.text) && !c.deleted() {
			s.raise(kindBuild, l.n, "starts or fetches something: %s", quote(l.text))
			return
		}
	}
}

var startsSomething = rx(`Command::new|process::|net::|reqwest|ureq|curl|system\s*[("]|exec|popen|urllib|requests\.|socket|` + "`" + `|open-uri`)

// requirement is a dependency or a version in a setup.py.
var requirement = pattern.New(`^\s*(["'][\w.\[\],-]+\s*([<>=!~;].*)?["']\s*,?|version\s*=\s*["'][\w.+-]+["'],?)\s*$`)

// checkSetupPy is setup.py: dependencies and versions are none.
func checkSetupPy(c *change, s *sink) {
	c.diff()
	all := len(c.added) > 0 && !c.deleted() && !c.created()
	for _, l := range meaning(c, c.added) {
		all = all && requirement.MatchString(l.text)
	}
	if !all {
		checkBuildScript(c, s)
	}
}

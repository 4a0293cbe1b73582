package detect

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var maven = ecosystem{
	name: "maven", files: []string{"pom.xml"}, tools: "java",
	launchers: lazyregexp.New(`^(?:sh )?(?:\./)?(?:mvnw|mvn)\b`),
	rules: []rule{
		{
			words: "", kind: kindTest, whole: lazyregexp.New(`\s(?:test|verify|install|package)(?:\s|$)`),
			narrow: lazyregexp.New(`\s(?:-pl|--projects|-Dtest=|-Dit\.test=|-P\S*|--activate-profiles)`),
		},
	},
}

// runWrapped runs the wrapper of a build tool in its place: setup does not install the tool then.
func runWrapped(d *detector, launcher, command string) string {
	if launcher == "mvn" && d.has("mvnw") || launcher == "gradle" && d.has("gradlew") {
		launcher = "sh ./" + launcher + "w"
	}
	return strings.TrimSpace(launcher + command)
}

func readMaven(d *detector, p *part) {
	f := d.open("pom.xml")
	if f == nil || gradleRules(d) {
		return
	}
	run := "mvn"
	d.matched(f, pomRelease, "java", ">=")
	d.need(Position{File: f.name}, "default-jdk-headless")
	if d.has("mvnw") {
		run = "sh ./mvnw"
	} else {
		d.need(Position{File: f.name}, "maven")
	}
	p.install(Position{File: f.name}, run+" --batch-mode --quiet test-compile")
	p.late = func([]*job) { // a build that checks more than its tests may only pass with their properties
		if i := slices.IndexFunc(p.checks, func(f found) bool { return f.kind == kindTest }); i >= 0 {
			p.setup[0].Text += strings.Join(mavenProperty.FindAllString(p.checks[i].command, maxList), "")
		}
	}
	p.convention(Position{File: f.name}, run+" --batch-mode verify")
	jvmMembers(d, "pom.xml")
}

var gradle = ecosystem{
	name: "gradle", files: []string{"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"}, tools: "java",
	launchers: lazyregexp.New(`^(?:sh )?(?:\./)?(?:gradlew|gradle)\b`),
	rules: []rule{
		{
			words: "", kind: kindTest, whole: lazyregexp.New(`\s(?:test|check|build)(?:\s|$)`),
			narrow: lazyregexp.New(`\s:\w|\s--tests\b|\s-p\s|\s-x\s`),
			drop:   lazyregexp.New(`\s--scan\b`), // it publishes what the build did
		},
	},
}

func readGradle(d *detector, p *part) {
	f := d.first("build.gradle.kts", "build.gradle", "settings.gradle.kts", "settings.gradle")
	if f == nil || d.has("pom.xml") && !gradleRules(d) {
		return
	}
	run := "gradle"
	d.need(Position{File: f.name}, "default-jdk-headless")
	if d.has("gradlew") {
		run = "sh ./gradlew"
	} else {
		d.need(Position{File: f.name}, "gradle")
	}
	// The JDK that runs Gradle is the pipeline's; a toolchain may be an older one, which Gradle fetches.
	if m := gradleJava.FindStringSubmatch(f.text); m != nil {
		d.hint(hintManifest, f.find(gradleJava), "java", ">="+m[1]+m[2])
	}
	p.install(Position{File: f.name}, run+" --no-daemon --quiet testClasses")
	p.convention(Position{File: f.name}, run+" --no-daemon check")
	jvmMembers(d, "build.gradle", "build.gradle.kts")
}

var (
	mavenProperty = lazyregexp.New(`\s-[DP](?:"[\w.=-]+"|[\w.=-]+)`)
	pomRelease    = lazyregexp.New(`<(?:maven\.compiler\.(?:release|target)|java\.version|release)>\s*(?:1\.)?([0-9]{1,2})\s*</`)
	gradleJava    = lazyregexp.New(`JavaLanguageVersion\.of\(\s*"?([0-9]{1,2})"?\s*\)|jvmToolchain\(\s*([0-9]{1,2})\s*\)`)
)

// gradleRules reports whether Gradle builds a directory that has a file of Maven, too: setup and checks use one of them.
func gradleRules(d *detector) bool {
	return d.has("gradlew") && !d.has("mvnw") && (d.has("build.gradle") || d.has("build.gradle.kts"))
}

// jvmMembers marks the modules of a build.
func jvmMembers(d *detector, files ...string) {
	for _, dir := range d.manifestDirs() {
		if len((&detector{d.source, dir}).names(".", files...)) > 0 {
			d.member(dir)
		}
	}
}

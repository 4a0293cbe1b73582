package versionrange

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRange(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct{ asked, in, out string }{
		{"22", "22.0.0 v22.9.1 22", "20.1.0 23.0.0 2.2.0 22.1.0-rc.1"},
		{"v20.9", "20.9.0 20.9.5", "20.10.0"},
		{"20.9.0", "20.9.0", "20.9.1 20.9.0-rc.1"},
		{"1.26rc1", "1.26rc1 go1.26rc1", "1.26 1.26.0 1.26rc2"},
		{"1.26", "go1.26 1.26.8", "1.26rc1 1.27.0"},
		{">=20 <23", "20.0.0 22.9.9", "19.9.9 23.0.0"},
		{">=3.9,<3.13", "3.9.0 3.12.7", "3.13.0 3.8.1"},
		{">= 3.9 , != 3.10.*", "3.9.1 3.11.0", "3.10.4"},
		{"^20", "20.1.0", "21.0.0"},
		{"^0.2.3", "0.2.4", "0.3.0 0.2.2"},
		{"~1.2.3", "1.2.9", "1.3.0 1.2.2"},
		{"~1.2", "1.2.0 1.2.9", "1.3.0"},
		{"~1", "1.9.0", "2.0.0"},
		{"~=3.9", "3.9.0 3.12.0", "4.0.0 3.8.0"},
		{"~=3.9.1", "3.9.4", "3.10.0"},
		{"~> 3.3", "3.3.0 3.9.0", "4.0.0"},
		{"~> 3.3.0", "3.3.8", "3.4.0"},
		{"==3.11.*", "3.11.4", "3.12.0"},
		{"20.x", "20.1.0", "21.0.0"},
		{"20.X.X || 22", "20.1.0 22.4.0", "21.0.0"},
		{"^7.4|^8.1", "7.4.3 8.2.0", "8.0.9 9.0.0"},
		{"18 - 20", "18.0.0 20.9.0", "21.0.0 17.9.9"},
		{">20", "21.0.0", "20.9.0"},
		{"<=20", "20.9.0 18.0.0", "21.0.0"},
		{">=1.21.3", "1.21.3 1.27.4 1.22", "1.21.2 1.21rc4"},
		{"17.0.9+9", "17.0.9 17.0.9+9-1~deb12u1", "17.0.10"},
		{"3.3.0", "3.3.0p0", "3.3.1"},
		{"*", "1 99.0.0", "1.0.0-beta.1"},
		{"latest", "1.0", ""},
		{"lts/*", "26.1.0", "24.1.0 27.0.0"},
		{"lts/-1", "24.1.0", "26.1.0"},
		{"lts/iron", "20.1.0", "22.1.0"},
	} {
		r, err := parseAt(row.asked, now)
		if err != nil {
			t.Errorf("%q: %v", row.asked, err)
			continue
		}
		for v := range strings.FieldsSeq(row.in) {
			if !r.Has(v) {
				t.Errorf("%q lacks %s", row.asked, v)
			}
		}
		for v := range strings.FieldsSeq(row.out) {
			if r.Has(v) {
				t.Errorf("%q has %s", row.asked, v)
			}
		}
	}
	if r, _ := parseAt("lts/*", now.AddDate(0, -1, 0)); !r.Has("24.0.0") || r.Has("26.0.0") {
		t.Error("an even number is a long-term release from the end of October on")
	}
}

func TestNotARange(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "nightly", "lts/zinc", "lts/-99", "system", "pypy3.9", "20 ||", ">=", "20; rm -rf /", "$(id)",
		"../x", "99999999999999999999",
	} {
		if r, err := Parse(s); err == nil {
			t.Errorf("%q is taken for %+v", s, r.any)
		}
	}
}

func TestNewestAndNear(t *testing.T) {
	t.Parallel()
	list := []string{"1.26.9", "1.26.10", "1.27.0", "1.27rc1", "2.0.0", "nonsense"}
	r, err := Parse("1.26")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Newest(list); got != "1.26.10" {
		t.Errorf("newest is %q", got)
	}
	if got := r.Near(list, 2); !slices.Equal(got, []string{"1.27.0", "1.26.10"}) {
		t.Errorf("near is %q", got)
	}
	if r, err = Parse("3"); err != nil || r.Newest(list) != "" || !slices.Equal(r.Near(list, 1), []string{"2.0.0"}) {
		t.Errorf("%v, newest %q, near %q", err, r.Newest(list), r.Near(list, 1))
	}
}

package workorder

import (
	"strings"
	"testing"
)

func TestAllowRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule string
		yes  []string // host port
		no   []string
	}{
		{"example.com", []string{"example.com 443", "example.com 80"}, []string{
			"example.com 22", "www.example.com 443",
			"notexample.com 443", "example.com.evil.org 443", "example.co 443",
		}},
		{"Example.COM.", []string{"example.com 443"}, nil},
		{"*.example.com", []string{"a.example.com 443", "a.b.example.com 80"}, []string{
			"example.com 443", "aexample.com 443",
			"a.example.com 22", "a.example.com.evil.org 443",
		}},
		{"example.com:22", []string{"example.com 22"}, []string{"example.com 443"}},
		{"*.example.com:8443", []string{"x.example.com 8443"}, []string{"x.example.com 443"}},
		{"xn--bcher-kva.example", []string{"xn--bcher-kva.example 443"}, nil},
		{"10.1.2.3:5432", []string{"10.1.2.3 5432"}, []string{"10.1.2.30 5432", "10.1.2.3 443"}},
		{"[2001:DB8::1]:443", []string{"2001:db8::1 443"}, []string{"2001:db8::1 80"}},
		{"2001:db8::1", []string{"2001:db8::1 443"}, nil},
		{"db.example.com:5432@private", []string{"db.example.com 5432"}, []string{"db.example.com 443"}},
		{"*.example.com@private", []string{"a.example.com 443"}, nil},
		{"::ffff:10.0.0.1", []string{"10.0.0.1 80"}, nil},
	} {
		r, err := ParseAllowRule(c.rule)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		if again, err := ParseAllowRule(r.String()); err != nil || again != r || r.Private != strings.HasSuffix(c.rule, "@private") {
			t.Errorf("%s is written %s, which is %v (%v)", c.rule, r, again, err)
		}
		for want, list := range map[bool][]string{true: c.yes, false: c.no} {
			for _, s := range list {
				host, port, _ := strings.Cut(s, " ")
				n := map[string]uint16{"22": 22, "80": 80, "443": 443, "5432": 5432, "8443": 8443}[port]
				if r.Match(host, n) != want {
					t.Errorf("%s: match of %s is %v", c.rule, s, !want)
				}
				if small := AllowRuleFor(host, n); !small.Match(host, n) {
					t.Errorf("the rule for %s is %s, which does not match it", s, small)
				}
			}
		}
	}
}

func TestBadAllowRules(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", ".", "*", "*.", "*.com", "a*.com", "*.*.com", "https://example.com", "example.com/x", "user@example.com", "example.com:0",
		"example.com:65536",
		"example.com:x", "example.com:", "exa mple.com", "example.com\x00.evil.org", "-a.com", "a..b", "bücher.example",
		"169.254.169.254", "[fd00:ec2::254]:80",
		"::ffff:169.254.169.254", "[::1", "[::1]443", "fe80::1%eth0", "1.2.3", "0x7f.1", "2130706433", "example.com:080", "a.com,b.com",
		"10.0.0.1@private", "@private", "a.com@public", "a.com@private@private", "a.com@private:443",
	} {
		if r, err := ParseAllowRule(s); err == nil {
			t.Errorf("%q is taken for %+v", s, r)
		}
	}
}

func TestServersOfModels(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"https://api.example.com/v1": true, "http://host.docker.internal:4000": true, "http://192.168.1.5:8080": true,
		"http://169.254.169.254": false, "http://[fe80::1]:80/v1": false, "http://[::ffff:169.254.170.2]/": false, "http://168.63.129.16": false,
		"ftp://x": false, "https://u:p@x": false,
	} {
		if err := CheckBaseURL(url); (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
	}
}

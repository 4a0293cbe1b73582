package text

import "testing"

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                             "plain",
		"a\x1b[31mred\x1b[0mb":              "aredb",
		"\x1b]0;title\x07x":                 "x",
		"\x1b]8;;http://x\x1b\\y":           "y",
		"\x1b]never ends":                   "",
		"\u009b31mx\u009d0;t\u009cz":        "xz",
		"\x1b(Bx\x1bcy\x1b":                 "xy",
		"10%\r50%\r100%\r\nnext":            "100%\nnext",
		"a\tb":                              "a    b",
		"bell\x07 nul\x00 del\x7f":          "bell\ufffd nul\ufffd del\ufffd",
		"\u202eevil\u2066":                  "\ufffdevil\ufffd",
		"bad \xff\x9b2J":                    "bad \ufffd\ufffd2J",
		"漢字 é 🎉":                            "漢字 é 🎉",
		"\x1bPq#0;2;0;0;0\x1b\\after":       "after",
		"\x1b[38;5;196mc\x1b[K\x1b[1;1Hd\n": "cd\n",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"\x1b[31m", "\u009b", "a\r\nb", "\x1b]0;x\x07", "\xc2\x9b\xc2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Clean(s) {
			if r < 0x20 && r != '\n' || r >= 0x7f && r <= 0x9f {
				t.Fatalf("Clean(%q) keeps %U", s, r)
			}
		}
	})
}

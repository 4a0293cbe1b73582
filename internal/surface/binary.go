package surface

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// programKind tells a program by its beginning, or is "".
func programKind(b []byte) string {
	has := func(magic string) bool { return bytes.HasPrefix(b, []byte(magic)) }
	switch {
	case has("\x7fELF"):
		return elfKind(b)
	case has("MZ") && len(b) >= 64:
		return "PE, Windows"
	case has("\xcf\xfa\xed\xfe"), has("\xce\xfa\xed\xfe"), has("\xfe\xed\xfa\xcf"), has("\xfe\xed\xfa\xce"):
		return "Mach-O, macOS"
	case has("\xca\xfe\xba\xbe") && len(b) >= 8:
		// A class file has its version here, a universal binary the number of its parts.
		if n := binary.BigEndian.Uint32(b[4:8]); n > 0 && n < 20 {
			return "Mach-O, macOS"
		}
		return "Java class"
	case has("\x00asm"):
		return "WebAssembly"
	case has("!<arch>\n"):
		return "library archive"
	case has("dex\n03"):
		return "Android dex"
	case has("\x1bLua"), has("\x1bLJ"):
		return "Lua bytecode"
	case has("BC\xc0\xde"):
		return "LLVM bitcode"
	case len(b) >= 16 && b[2] == '\r' && b[3] == '\n' && b[1] >= 0x0a && b[1] <= 0x0f:
		return "Python bytecode"
	case has("\xed\xab\xee\xdb"):
		return "RPM package"
	case has("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
		return "OLE file: installer or document with macros"
	}
	return ""
}

func elfKind(b []byte) string {
	if len(b) >= 18 && (b[16] == 3 || b[17] == 3) {
		return "ELF, Linux, shared object or program"
	}
	return "ELF, Linux"
}

// zipPrograms are names of archives that a runtime loads as programs.
var zipPrograms = map[string]string{
	".jar": "Java archive", ".war": "Java archive", ".ear": "Java archive", ".aar": "Java archive", ".whl": "Python package", ".egg": "Python package", ".pyz": "Python program", ".apk": "Android program",
	".xpi": "browser extension", ".crx": "browser extension", ".vsix": "editor extension", ".nupkg": "NuGet package", ".ipa": "iOS program", ".phar": "PHP program", ".gem": "Ruby package",
	".xlsm": "document with macros", ".docm": "document with macros",
}

var archives = map[string]bool{".zip": true, ".gz": true, ".tgz": true, ".xz": true, ".bz2": true, ".zst": true, ".tar": true, ".7z": true, ".rar": true, ".deb": true, ".rpm": true, ".dmg": true, ".iso": true, ".msi": true, ".cab": true}

// picture tells images, fonts, sounds and documents, which run nothing.
func picture(b []byte) bool {
	for _, m := range []string{"\x89PNG", "\xff\xd8\xff", "GIF8", "RIFF", "BM", "\x00\x00\x01\x00", "II*\x00", "MM\x00*", "%PDF-1", "wOFF", "wOF2", "OTTO", "\x00\x01\x00\x00", "ID3", "OggS", "fLaC", "\xff\xfb", "\x1aE\xdf\xa3", "8BPS", "SQLite format 3"} {
		if bytes.HasPrefix(b, []byte(m)) {
			return true
		}
	}
	return len(b) > 12 && (string(b[4:8]) == "ftyp" || string(b[4:8]) == "jP  ")
}

// checkBinary says what a file is that cannot be read in a review. Pictures and data are no findings.
func checkBinary(c *change, s *sink, beginning string) {
	b := []byte(beginning[:min(len(beginning), sniffBytes)])
	kind := programKind(b)
	if kind == "" && (bytes.HasPrefix(b, []byte("PK\x03\x04")) || c.ext() == ".phar" || c.ext() == ".gem" || c.ext() == ".crx") {
		kind = zipPrograms[c.ext()]
		if kind == "" && bytes.Contains(b, []byte("META-INF/")) {
			kind = "Java archive"
		}
	}
	what := "new"
	if !c.created() {
		what = "changed"
	}
	size := bytesText(c.newSize)
	switch {
	case kind != "":
		if n := c.ext(); dataFile[n] {
			what += ", under the name of something else"
		}
		s.add(kindBinary, 0, true, "%s program, %s, %s", what, kind, size)
	case archives[c.ext()]:
		s.add(kindBinary, 0, false, "%s archive, %s; what is in it was not read", what, size)
	case sourceFile(c) && c.why == "":
		s.add(kindBinary, 0, true, "%s binary data under the name of source, %s", what, size)
	case c.newMode == modeExecutable && !picture(b):
		s.add(kindBinary, 0, true, "%s binary file of unknown kind that can be run, %s", what, size)
	}
}

// mediaName are names of large files that are expected to be no text.
func mediaName(c *change) bool {
	return strings.Contains(" .png .jpg .jpeg .gif .webp .mp4 .webm .mov .mp3 .ogg .wav .pdf .psd .ttf .otf .woff .woff2 .ico .bmp .tiff .avif ", " "+c.ext()+" ")
}

package gitguard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// programs matches the settings whose values git or another program runs. The part between the first and the last dot may be anything.
var programs = lazyregexp.New(`(?i)^(` + strings.Join([]string{
	`core\.(askpass|alternaterefscommand|editor|fsmonitor|gitproxy|pager|sshcommand)`, `sequence\.editor`, `pager\..*`,
	`interactive\.difffilter`,
	`diff\.external`, `diff\..*\.(command|textconv)`, `merge\..*\.driver`, `filter\..*\.(clean|smudge|process)`, `hook\..*\.command`,
	`gpg\.program`, `gpg\..*\.program`, `gpg\.ssh\.defaultkeycommand`, `credential\.helper`, `credential\..*\.helper`, `alias\..*`,
	`(difftool|mergetool|man|browser|guitool)\..*\.(cmd|path)`, `remote\..*\.(uploadpack|receivepack|vcs)`, `submodule\..*\.update`,
	`trailer\..*\.(cmd|command)`, `tar\..*\.command`, `sendemail\.(.*\.)?(smtpserver|sendmailcmd|tocmd|cccmd|headercmd)`, `imap\.tunnel`,
	`uploadpack\.packobjectshook`,
	`lfs\.extension\..*\.(clean|smudge)`, `lfs\.customtransfer\..*\.(path|args)`, `instaweb\.(browser|httpd)`, `(help|web)\.browser`,
	`receive\.procreceiverefs`,
}, "|") + `)$`)

// included matches the settings that name another settings file.
var included = lazyregexp.New(`(?i)^(include\.path|includeif\..*\.path)$`)

type entry struct{ file, key, value string }

// originEntries parses the output of `git config --list --null --show-origin` in dir.
func originEntries(out, dir string) (all []entry) {
	for fields := strings.Split(out, "\x00"); len(fields) >= 2; fields = fields[2:] {
		file, ok := strings.CutPrefix(fields[0], "file:")
		if !ok {
			continue // from the command line
		}
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		key, value, _ := strings.Cut(fields[1], "\n")
		all = append(all, entry{file, key, value})
	}
	return all
}

// settings protects the settings files and what they name. Relative names count from the working tree top, which may be "".
func (f *finder) settings(ctx context.Context, dir, top string, all []entry) error {
	for len(all) > 0 {
		e := all[0]
		all = all[1:]
		why := fmt.Sprintf("%s of %s names it", e.key, e.file)
		var err error
		switch {
		case f.ownHooks && (strings.EqualFold(e.key, "core.hooksPath") || strings.EqualFold(e.key, "core.fsmonitor")):
		case included.MatchString(e.key):
			path := absolute(e.value, filepath.Dir(e.file))
			if err = f.protect(path, why); err == nil {
				all = append(all, f.include(ctx, dir, top+"\x00"+path, path)...)
			}
		case strings.EqualFold(e.key, "core.hooksPath"):
			err = f.hooks(absolute(e.value, top), why)
		case strings.EqualFold(e.key, "init.templateDir"):
			err = f.protect(absolute(e.value, top), why)
		case programs.MatchString(e.key):
			err = f.program(e.key, e.value, top, why)
		}
		if err == nil {
			err = f.protect(e.file, "git's settings are in it")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// include reads a settings file, once for each working tree.
func (f *finder) include(ctx context.Context, dir, once, path string) (all []entry) {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || f.files[once] {
		return nil
	}
	f.files[once] = true
	// If git cannot read it, the user's git fails, too.
	out, _ := output(ctx, reader(dir), "config", "--file", path, "--no-includes", "--list", "--null")
	for field := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		key, value, _ := strings.Cut(field, "\n")
		all = append(all, entry{path, key, value})
	}
	return all
}

// hooks protects a directory of hooks. Husky's "_" runs the hooks of its parent.
func (f *finder) hooks(path, why string) error {
	if filepath.Base(path) == "_" {
		path = filepath.Dir(path)
	}
	return f.protect(path, why)
}

// program protects the files that a command line names, as its program or as an argument. A word that may be something
// else counts if such a file exists. A word that can only be a path must exist.
func (f *finder) program(key, value, top, why string) error {
	if strings.HasPrefix(strings.ToLower(key), "alias.") && !strings.HasPrefix(value, "!") && !strings.Contains(value, "=") {
		return nil // an alias of a git command
	}
	for i, word := range words(value, top) {
		path := absolute(word, top)
		if !filepath.IsAbs(path) {
			continue
		}
		st, err := os.Lstat(path)
		rooted := filepath.IsAbs(word) || strings.HasPrefix(word, "~/")
		switch {
		case err == nil && st.IsDir():
			continue // a repository or a working directory
		case err == nil && !strings.Contains(word, "/") && st.Mode().Perm()&0o111 == 0 && !strings.Contains(word, "."):
			continue // an ordinary word
		case err != nil && (i == 0 || strings.ContainsAny(word, " \t\n") || !rooted && !strings.HasPrefix(word, "./") &&
			!strings.HasPrefix(word, "../") && (i > 1 || !strings.Contains(word, "/"))):
			continue
		}
		if err := f.protect(path, why); err != nil {
			return err
		}
	}
	return nil
}

// words returns the whole value and its shell words, including the words of quoted text.
func words(value, top string) []string {
	value = strings.TrimPrefix(value, "!")
	home, _ := os.UserHomeDir() // without a home these words stay unchanged
	value = strings.NewReplacer("$(git rev-parse --show-toplevel)", top, "`git rev-parse --show-toplevel`", top, "$(pwd)", top, "$PWD", top,
		"${PWD}", top,
		"$GIT_WORK_TREE", top, "${GIT_WORK_TREE}", top, "$HOME", home, "${HOME}", home, `"$(git rev-parse --show-toplevel)"`, top).Replace(value)
	all := []string{value}
	var quoted strings.Builder
	quote := rune(0)
	end := func() {
		if quoted.Len() > 0 {
			all = append(all, quoted.String())
			quoted.Reset()
		}
	}
	for _, c := range value {
		switch {
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote:
			quote = 0
		case quote == 0 && strings.ContainsRune(" \t\n;|&()<>{}`=,", c):
			end()
		default:
			quoted.WriteRune(c)
		}
	}
	end()
	for _, word := range slices.Clone(all[1:]) {
		if parts := strings.FieldsFunc(word, func(c rune) bool { return strings.ContainsRune(" \t\n;|&()<>{}`=,\"'", c) }); len(parts) > 1 {
			all = append(all, parts...)
		}
	}
	return all
}

// absolute resolves a path of git's settings against base.
func absolute(path, base string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(path) || base == "" || path == "" {
		return path
	}
	return filepath.Join(base, path)
}

package text

import "strings"

// Shell is words as a command of a POSIX shell, each quoted that the shell would not take as it is. The first is quoted no more than that:
// a reserved word, or NAME=VALUE, means there what it means to the shell.
func Shell(words ...string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,=-"
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		if w == "" || strings.Trim(w, plain) != "" {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		b.WriteString(w)
	}
	return b.String()
}

package text

import "strings"

// Shell formats words as a POSIX shell command, quoted where necessary. The first word may be a reserved word or NAME=VALUE.
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

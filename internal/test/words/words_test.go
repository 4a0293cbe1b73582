// Package words checks the language of the project.
package words

import (
	"bytes"
	_ "embed"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	//go:embed words.txt
	words string
	//go:embed allowed.txt
	allowed string
)

const root = "../../.."

// lines returns the lines of a list without comments and empty ones.
func lines(list string) (all []string) {
	for line := range strings.Lines(list) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// prose returns what people read of a Go file: comments, string literals and the beginning of type declarations, each at its
// line; other code is blank.
func prose(t *testing.T, path string, src []byte) []byte {
	t.Helper()
	fset := token.NewFileSet()
	if _, err := parser.ParseFile(fset, path, src, parser.PackageClauseOnly); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte(" "), len(src))
	for i, b := range src {
		if b == '\n' {
			text[i] = b
		}
	}
	var s scanner.Scanner
	file := fset.AddFile(path, fset.Base(), len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	declares := false
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return text
		}
		if tok == token.COMMENT || tok == token.STRING || tok == token.TYPE || tok == token.IDENT && declares {
			copy(text[file.Offset(pos):], lit)
		}
		declares = tok == token.TYPE
	}
}

// TestWords finds no private word in the product's comments and texts, nor in the documents.
func TestWords(t *testing.T) {
	t.Parallel()
	bad := regexp.MustCompile(`(?i)\b(` + strings.Join(lines(words), "|") + `)\b`)
	type exception struct {
		path string
		line *regexp.Regexp
		used bool
	}
	var exceptions []*exception
	for _, line := range lines(allowed) {
		f := strings.Split(line, "\t")
		if len(f) != 3 || f[2] == "" {
			t.Fatalf("allowed.txt: not path, expression and reason: %q", line)
		}
		exceptions = append(exceptions, &exception{path: f[0], line: regexp.MustCompile(f[1])})
	}
	files := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "testdata" || d.Name() == "node_modules" || rel == "internal/test" {
				return filepath.SkipDir
			}
			return nil
		}
		isGo := strings.HasSuffix(rel, ".go") && !strings.HasSuffix(rel, "_test.go")
		if !isGo && !strings.HasSuffix(rel, ".md") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		if isGo {
			src = prose(t, rel, src)
		}
		n := 0
		for line := range strings.Lines(string(src)) {
			n++
			word := bad.FindString(line)
			if word == "" {
				continue
			}
			fine := false
			for _, e := range exceptions {
				if e.path == rel && e.line.MatchString(line) {
					fine, e.used = true, true
				}
			}
			if !fine {
				t.Errorf("%s:%d: %q: %s", rel, n, word, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil || files < 500 {
		t.Fatalf("%d files, %v", files, err)
	}
	for _, e := range exceptions {
		if !e.used {
			t.Errorf("allowed.txt: %s needs no exception for %s", e.path, e.line)
		}
	}
}

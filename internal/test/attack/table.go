package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Tried is a row with the box it was tried in, as the tests write it.
type Tried struct {
	Box string `json:"box"`
	Row
}

// maxCell is how much of what came back is shown in a table.
const maxCell = 110

// table prints what was tried as Markdown: one line for each attempt, one column for each box, and what came
// back in the last box that tried it. It fails when something came out otherwise than expected.
func table(from io.Reader, to io.Writer) error {
	var boxes, order []string
	cells := map[string]map[string]Tried{}
	sc := bufio.NewScanner(from)
	for sc.Scan() {
		var r Tried
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			return fmt.Errorf("read what was tried: %w", err)
		}
		if len(boxes) == 0 || boxes[len(boxes)-1] != r.Box {
			boxes = append(boxes, r.Box)
		}
		key := r.Group + "\x00" + r.Name
		if cells[key] == nil {
			cells[key] = map[string]Tried{}
			order = append(order, key)
		}
		cells[key][r.Box] = r
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read what was tried: %w", err)
	}
	var groups []string
	for _, key := range order {
		if g, _, _ := strings.Cut(key, "\x00"); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	place := func(key string) int {
		g, _, _ := strings.Cut(key, "\x00")
		return slices.Index(groups, g)
	}
	slices.SortStableFunc(order, func(a, b string) int { return place(a) - place(b) })
	wrong := 0
	group := ""
	for _, key := range order {
		g, name, _ := strings.Cut(key, "\x00")
		if g != group {
			group = g
			fmt.Fprintf(to, "\n**%s**\n\n| attempt | %s | what came back |\n| --- |%s --- |\n", g, strings.Join(boxes, " | "),
				strings.Repeat(" --- |", len(boxes)))
		}
		fmt.Fprintf(to, "| %s |", cell(name))
		got := ""
		for _, b := range boxes {
			r, ok := cells[key][b]
			if !ok {
				fmt.Fprint(to, " – |")
				continue
			}
			got = r.Got
			if r.OK {
				fmt.Fprintf(to, " %s |", r.Expected)
				continue
			}
			wrong++
			fmt.Fprintf(to, " **not %s** |", r.Expected)
		}
		fmt.Fprintf(to, " %s |\n", cell(got))
	}
	fmt.Fprintf(to, "\n%d attempts in %d boxes, %d of them otherwise than expected. –: it cannot be tried there.\n", len(order),
		len(boxes), wrong)
	if wrong > 0 {
		return fmt.Errorf("%d attempts came out otherwise than expected", wrong)
	}
	return nil
}

func cell(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), "403 sandbox-agent guard: ")
	if r := []rune(s); len(r) > maxCell {
		s = string(r[:maxCell]) + "…"
	}
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", "", "<", "&lt;", "*", `\*`, "`", "'").Replace(s)
}

func printTable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return table(f, os.Stdout)
}

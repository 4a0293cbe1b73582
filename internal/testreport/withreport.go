package testreport

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

// ReportCommand is a command line whose runner writes a report if it is known.
type ReportCommand struct {
	Line string
	// Prints is the format of a report that replaces the output for people; None if the output stays.
	Prints Format
}

// asks are the known runners by the beginning of their command line. Lines with more than one plain command stay unchanged.
var asks = []struct {
	begins *lazyregexp.Pattern
	has    string // an option by which the line asks already
	add    func(line string) ReportCommand
}{
	{lazyregexp.New(`^go test(?: |$)`), "-json", func(line string) ReportCommand {
		return ReportCommand{strings.Replace(line, "go test", "go test -json", 1), GoJSON}
	}},
	{lazyregexp.New(`^(?:[\w./$~-]*python[0-9.]*" -m |[\w./$~"-]*python[0-9.]* -m |(?:uv|poetry|pdm|hatch) run (?:python -m )?)?` +
		`pytest(?: |$)`), "junit", func(line string) ReportCommand {
		return ReportCommand{line + " --junitxml=" + askedFile, None}
	}},
	{lazyregexp.New(`^(?:npx |pnpm exec |yarn )?vitest run(?: |$)`), "--reporter", func(line string) ReportCommand {
		return ReportCommand{line + " --reporter=default --reporter=junit --outputFile.junit=" + askedFile, None}
	}},
	{lazyregexp.New(`^(?:npx |pnpm exec |yarn )?jest(?: |$)`), "--json", func(line string) ReportCommand {
		return ReportCommand{line + " --json --outputFile=" + askedJSON, None}
	}},
	{lazyregexp.New(`^(?:\./)?vendor/bin/phpunit(?: |$)`), "--log-junit", func(line string) ReportCommand {
		return ReportCommand{line + " --log-junit " + askedFile, None}
	}},
}

// Report files in the clean checkout, with names that Find knows.
const (
	askedFile = "sandbox-agent-junit.xml"
	askedJSON = "sandbox-agent-jest.json"
)

// joins are signs of more than one plain command.
const joins = "|;&<>`\n\\"

// script is a command that runs a script of package.json.
var script = lazyregexp.New(`^(npm|pnpm|yarn|bun)(?: run)? ([A-Za-z0-9:_-]+)$`)

// WithReport returns the command line with options for a report; unchanged if the runner is unknown or writes one
// already. manifest is the repository's package.json, empty if there is none.
func WithReport(line string, manifest []byte) ReportCommand {
	line = strings.TrimSpace(line)
	if m := script.FindStringSubmatch(line); m != nil {
		run := scriptOf(manifest, m[2])
		asked := ask(run)
		options, ok := strings.CutPrefix(asked.Line, run)
		if run == "" || !ok || options == "" {
			return ReportCommand{Line: line}
		}
		if m[1] == "npm" {
			options = " --" + options
		}
		return ReportCommand{line + options, asked.Prints}
	}
	return ask(line)
}

// scriptOf returns a script of a package.json; empty if it has none of that name.
func scriptOf(manifest []byte, name string) string {
	var m struct {
		Scripts map[string]string `json:"scripts"`
	}
	if json.Unmarshal(manifest, &m) != nil {
		return ""
	}
	return strings.TrimSpace(m.Scripts[name])
}

func ask(line string) ReportCommand {
	if strings.ContainsAny(line, joins) || strings.Contains(line, "$(") {
		return ReportCommand{Line: line}
	}
	for _, a := range asks {
		if a.begins.MatchString(line) && !strings.Contains(line, a.has) {
			return a.add(line)
		}
	}
	return ReportCommand{Line: line}
}

// Readable writes the output that a command would have printed without a report.
func Readable(format Format, in io.Reader, out io.Writer) error {
	if format != GoJSON {
		_, err := io.Copy(out, in)
		return err
	}
	w := bufio.NewWriter(out)
	lines := texts.NewLines(texts.MaxLine, func(line []byte, _ int64) {
		var e goEvent
		if err := json.Unmarshal(line, &e); err != nil {
			fmt.Fprintln(w, string(line)) // of the build, or of something else
			return
		}
		// Output of no test, and the end of tests that did not pass, as without -v.
		if e.Output != "" && (e.Test == "" || !strings.HasPrefix(e.Output, "=== ")) {
			fmt.Fprint(w, e.Output)
		}
	})
	_, err := io.Copy(lines, in)
	lines.Close()
	if err != nil {
		return err
	}
	return w.Flush()
}

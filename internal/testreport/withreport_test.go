package testreport

import (
	"strings"
	"testing"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]ReportCommand{
		"go test ./...":                    {"go test -json ./...", GoJSON},
		"go test":                          {"go test -json", GoJSON},
		" go test -race -v ./a ":           {"go test -json -race -v ./a", GoJSON},
		"pytest -q":                        {"pytest -q --junitxml=" + askedFile, None},
		"$HOME/.venv/bin/python -m pytest": {"$HOME/.venv/bin/python -m pytest --junitxml=" + askedFile, None},
		"uv run pytest tests":              {"uv run pytest tests --junitxml=" + askedFile, None},
		"npx vitest run":                   {"npx vitest run --reporter=default --reporter=junit --outputFile.junit=" + askedFile, None},
		"npx jest a":                       {"npx jest a --json --outputFile=" + askedJSON, None},
		"vendor/bin/phpunit":               {"vendor/bin/phpunit --log-junit " + askedFile, None},
		// Asked already, more than one command, or not known.
		"go test -json ./...":           {Line: "go test -json ./..."},
		"go test ./... | tee log":       {Line: "go test ./... | tee log"},
		"go test ./... && go vet ./...": {Line: "go test ./... && go vet ./..."},
		"go test $(go list ./...)":      {Line: "go test $(go list ./...)"},
		"go testify":                    {Line: "go testify"},
		"cd a && pytest":                {Line: "cd a && pytest"},
		"pytest --junitxml=a.xml":       {Line: "pytest --junitxml=a.xml"},
		"pytest-watch":                  {Line: "pytest-watch"},
		"npm test":                      {Line: "npm test"},
		"go test \\\n./...":             {Line: "go test \\\n./..."},
	} {
		if got := WithReport(line, nil); got != want {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
	const manifest = `{"scripts": {"test": "jest", "unit": "vitest run --coverage", "both": "jest && eslint .", "go": "go test ./..."}}`
	for line, want := range map[string]string{
		"npm test":      "npm test -- --json --outputFile=" + askedJSON,
		"pnpm run unit": "pnpm run unit --reporter=default --reporter=junit --outputFile.junit=" + askedFile,
		"npm run both":  "npm run both",
		"yarn lint":     "yarn lint",
		"npm run go":    "npm run go",
		"npm test -- a": "npm test -- a",
	} {
		if got := WithReport(line, []byte(manifest)); got.Line != want || got.Prints != None {
			t.Errorf("%q: %+v, want %q", line, got, want)
		}
	}
	for _, name := range []string{askedFile, askedJSON} {
		if !usualNames.MatchString(name) {
			t.Errorf("%s is not looked for", name)
		}
	}
}

func TestReadable(t *testing.T) {
	t.Parallel()
	const in = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: why\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA (0.00s)\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
# built
`
	var out strings.Builder
	if err := Readable(GoJSON, strings.NewReader(in), &out); err != nil || out.String() != "    a_test.go:3: why\n--- FAIL: TestA (0.00s)\nFAIL\tp\t0.1s\n# built\n" {
		t.Errorf("%q, %v", &out, err)
	}
}

//go:build ignore

// Writes the excerpt of the public OpenAPI description of GitHub's REST API that the forge and its
// contract tests are checked against: the operations that package forge uses, with all that they refer to,
// without examples and prose. The description is that of the npm package @octokit/openapi.
//
// Run it with `go generate ./internal/test/forgetest` after raising the version or using another operation.
package main

import (
	"encoding/json"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const pkg, version = "@octokit/openapi", "23.0.2"

var operations = []string{
	"get /meta",
	"get /repos/{owner}/{repo}",
	"get /repos/{owner}/{repo}/collaborators/{username}/permission",
	"get /repos/{owner}/{repo}/installation",
	"post /app/installations/{installation_id}/access_tokens",
	"get /repos/{owner}/{repo}/pulls",
	"post /repos/{owner}/{repo}/pulls",
	"get /repos/{owner}/{repo}/pulls/{pull_number}",
	"patch /repos/{owner}/{repo}/pulls/{pull_number}",
	"post /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
	"get /repos/{owner}/{repo}/pulls/{pull_number}/reviews",
	"post /repos/{owner}/{repo}/pulls/{pull_number}/comments/{comment_id}/replies",
	"patch /repos/{owner}/{repo}/pulls/comments/{comment_id}",
	"get /repos/{owner}/{repo}/issues/{issue_number}",
	"get /repos/{owner}/{repo}/issues/{issue_number}/comments",
	"post /repos/{owner}/{repo}/issues/{issue_number}/comments",
	"patch /repos/{owner}/{repo}/issues/comments/{comment_id}",
	"get /repos/{owner}/{repo}/labels/{name}",
	"post /repos/{owner}/{repo}/labels",
	"post /repos/{owner}/{repo}/issues/{issue_number}/labels",
	"post /repos/{owner}/{repo}/issues/{issue_number}/assignees",
}

// prose has no meaning for a validator. As names of properties these words stay: their values are objects.
var prose = []string{"example", "examples", "description", "summary", "externalDocs", "x-github", "tags", "x-github-breaking-changes"}

func main() {
	dir, err := os.MkdirTemp("", "openapi")
	check(err)
	defer os.RemoveAll(dir)
	cmd := exec.Command("npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts", pkg+"@"+version)
	cmd.Stderr = os.Stderr
	check(cmd.Run())
	data, err := os.ReadFile(filepath.Join(dir, "node_modules", filepath.FromSlash(pkg), "generated", "api.github.com.json"))
	check(err)
	var doc map[string]any
	check(json.Unmarshal(data, &doc))

	paths := map[string]any{}
	for _, op := range operations {
		method, path, _ := strings.Cut(op, " ")
		item, ok := doc["paths"].(map[string]any)[path].(map[string]any)
		if !ok || item[method] == nil {
			log.Fatalf("the description has no %s", op)
		}
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path].(map[string]any)[method] = bare(item[method], false)
	}
	out := map[string]any{
		"openapi": doc["openapi"],
		"info": map[string]any{
			"title": "excerpt of the GitHub REST API", "version": pkg + " " + version,
			"license": doc["info"].(map[string]any)["license"],
		},
		"paths": paths, "components": map[string]any{},
	}
	for todo := refs(paths); len(todo) > 0; {
		ref := todo[0]
		todo = todo[1:]
		p := strings.Split(strings.TrimPrefix(ref, "#/components/"), "/")
		kind, _ := out["components"].(map[string]any)[p[0]].(map[string]any)
		if kind == nil {
			kind = map[string]any{}
			out["components"].(map[string]any)[p[0]] = kind
		}
		if kind[p[1]] == nil {
			kind[p[1]] = bare(doc["components"].(map[string]any)[p[0]].(map[string]any)[p[1]], false)
			if p[0] == "responses" {
				describe(kind)
			}
			todo = append(todo, refs(kind[p[1]])...)
		}
	}
	text, err := json.MarshalIndent(out, "", " ")
	check(err)
	check(os.WriteFile("testdata/github-rest.octokit-openapi-"+version+".json", append(text, '\n'), 0o644))
}

// bare drops prose. names is set where the keys are names and not words of the description's language.
func bare(v any, names bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if !names && slices.Contains(prose, k) {
				continue
			}
			out[k] = bare(e, !names && (k == "properties" || k == "responses"))
			if m, ok := out[k].(map[string]any); ok && k == "responses" {
				describe(m)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, bare(e, false))
		}
		return out
	}
	return v
}

// describe gives responses the description that they have to have.
func describe(responses map[string]any) {
	for _, r := range responses {
		if r := r.(map[string]any); r["$ref"] == nil {
			r["description"] = ""
		}
	}
}

func refs(v any) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		if r, ok := v["$ref"].(string); ok {
			out = append(out, r)
		}
		for _, e := range v {
			out = append(out, refs(e)...)
		}
	case []any:
		for _, e := range v {
			out = append(out, refs(e)...)
		}
	}
	return out
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

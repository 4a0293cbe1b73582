package guard

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

type kind int

const (
	plain  kind = iota // no body is forwarded; if body is set, it checks one
	jsonly             // a JSON body that is checked
	stream             // a body that passes through
	hijack             // the connection becomes a stream
)

// endpoint is a known request. "*" in the path stands for one part of it, "**" for one or more.
type endpoint struct {
	method, path string
	kind         kind
	body         check                  // of a JSON body; with hijack and nil there is none
	query        func(url.Values) error // nil if every query is harmless
	archive      bool
	starts       bool // a container, whose binds are reopened
	ends         bool // containers may be gone after it
	shows        bool // the answer, or an error, contains sources of binds
}

const (
	get    = http.MethodGet
	head   = http.MethodHead
	post   = http.MethodPost
	put    = http.MethodPut
	remove = http.MethodDelete
)

var endpoints = []endpoint{
	{method: get, path: "/_ping"},
	{method: head, path: "/_ping"},
	{method: get, path: "/version"},
	{method: get, path: "/info"},
	{method: get, path: "/events"},
	{method: get, path: "/system/df", shows: true},
	{method: post, path: "/auth", kind: jsonly, body: credentials},
	{method: get, path: "/plugins"},

	{method: get, path: "/containers/json", shows: true},
	{method: get, path: "/containers/*/json", shows: true},
	{method: get, path: "/containers/*/export"},
	{method: get, path: "/containers/*/changes"},
	{method: get, path: "/containers/*/top", query: topQuery},
	{method: get, path: "/containers/*/logs"},
	{method: get, path: "/containers/*/stats"},
	{method: get, path: "/containers/*/attach/ws", kind: hijack},
	{method: get, path: "/containers/*/archive", archive: true, shows: true},
	{method: head, path: "/containers/*/archive", archive: true},
	{method: put, path: "/containers/*/archive", kind: stream, archive: true, shows: true},
	{method: post, path: "/containers/create", kind: jsonly, body: createBody, shows: true},
	{method: post, path: "/containers/*/kill"},
	{method: post, path: "/containers/*/pause"},
	{method: post, path: "/containers/*/unpause"},
	{method: post, path: "/containers/*/restart", starts: true, shows: true},
	{method: post, path: "/containers/*/start", body: startBody, query: startQuery, starts: true, shows: true},
	{method: post, path: "/containers/*/stop"},
	{method: post, path: "/containers/*/wait", ends: true, shows: true},
	{method: post, path: "/containers/*/resize"},
	{method: post, path: "/containers/*/attach", kind: hijack},
	{method: post, path: "/containers/*/exec", kind: jsonly, body: execBody},
	{method: post, path: "/containers/*/rename"},
	{method: post, path: "/containers/*/update", kind: jsonly, body: updateBody},
	{method: post, path: "/containers/prune", ends: true},
	{method: remove, path: "/containers/*", ends: true},
	{method: get, path: "/exec/*/json"},
	{method: post, path: "/exec/*/start", kind: hijack, body: execStart},
	{method: post, path: "/exec/*/resize"},
	{method: post, path: "/commit", kind: jsonly, body: createBody},

	{method: get, path: "/images/json"},
	{method: get, path: "/images/search"},
	{method: get, path: "/images/get"},
	{method: get, path: "/images/**/get"},
	{method: get, path: "/images/**/history"},
	{method: get, path: "/images/**/json"},
	{method: post, path: "/images/load", kind: stream},
	{method: post, path: "/images/create", kind: stream, query: importQuery},
	{method: post, path: "/images/**/push"},
	{method: post, path: "/images/**/tag"},
	{method: post, path: "/images/prune"},
	{method: remove, path: "/images/**"},
	{method: get, path: "/distribution/**/json"},

	{method: post, path: "/build", kind: stream, query: buildQuery},
	{method: post, path: "/build/prune"},
	{method: post, path: "/build/cancel"},
	{method: post, path: "/session", kind: hijack},
	{method: post, path: "/grpc", kind: hijack},

	{method: get, path: "/networks"},
	{method: get, path: "/networks/*"},
	{method: post, path: "/networks/create", kind: jsonly, body: networkBody},
	{method: post, path: "/networks/*/connect", kind: jsonly, body: connectBody},
	{method: post, path: "/networks/*/disconnect", kind: jsonly, body: disconnectBody},
	{method: post, path: "/networks/prune"},
	{method: remove, path: "/networks/*"},

	{method: get, path: "/volumes"},
	{method: get, path: "/volumes/*"},
	{method: post, path: "/volumes/create", kind: jsonly, body: volumeBody},
	{method: post, path: "/volumes/prune"},
	{method: remove, path: "/volumes/*"},
}

// families are the reasons why the rest of the API is refused, by the first part of the path.
var families = map[string]string{
	"plugins": rulePlugin, "swarm": ruleSwarm, "services": ruleSwarm, "nodes": ruleSwarm, "tasks": ruleSwarm,
	"secrets": ruleSwarm, "configs": ruleSwarm,
}

const (
	oldestMajor, oldestMinor = 1, 24
	maxPath                  = 4096
)

var versionPart = lazyregexp.New(`^v[0-9.]`)

// locate finds the endpoint and the canonical path of a request. p is the path as the engine sees it: decoded once.
func locate(method, p string) (endpoint, []string, error) {
	parts, err := splitPath(p)
	if err != nil {
		return endpoint{}, nil, err
	}
	rest := parts
	if versionPart.MatchString(parts[0]) {
		if err := checkVersion(parts[0]); err != nil {
			return endpoint{}, nil, err
		}
		rest = parts[1:]
	}
	for _, e := range endpoints {
		if e.method == method && match(strings.Split(e.path[1:], "/"), rest) {
			return e, parts, nil
		}
	}
	rule := ruleEndpoint
	if len(rest) > 0 && families[rest[0]] != "" {
		rule = families[rest[0]]
	}
	if slices.Contains(rest, "checkpoints") {
		rule = ruleCheckpoint
	}
	return endpoint{}, nil, refuse(rule, "%s /%s is not possible in a sandbox", method, strings.Join(rest, "/"))
}

// splitPath takes a decoded path apart. Doubled slashes count as one: names of containers come with one in front.
func splitPath(p string) ([]string, error) {
	bad := func(why string) error { return refuse(rulePath, "the path %q %s", p, why) }
	if len(p) > maxPath {
		return nil, bad("is too long")
	}
	if !strings.HasPrefix(p, "/") {
		return nil, bad("does not begin with a slash")
	}
	var parts []string
	for part := range strings.SplitSeq(p, "/") {
		switch part {
		case "":
			continue
		case ".", "..":
			return nil, bad("has a part that is only dots")
		}
		if i := strings.IndexFunc(part, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.:@+~ -", r)
		}); i >= 0 {
			return nil, bad("has a character that names do not have")
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil, bad("is empty")
	}
	return parts, nil
}

func checkVersion(s string) error {
	major, minor, ok := strings.Cut(s[1:], ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if !ok || err1 != nil || err2 != nil || s != "v"+strconv.Itoa(a)+"."+strconv.Itoa(b) {
		return refuse(ruleAPIVersion, "%q is not an API version", s)
	}
	if a < oldestMajor || a == oldestMajor && b < oldestMinor {
		return refuse(ruleAPIVersion, "the API version %s is too old, the oldest is %d.%d", s[1:], oldestMajor, oldestMinor)
	}
	return nil
}

func match(pattern, parts []string) bool {
	for i, p := range pattern {
		if p == "**" {
			tail := len(pattern) - i - 1
			return len(parts) > i+tail && match(pattern[i+1:], parts[len(parts)-tail:])
		}
		if i >= len(parts) || p != "*" && p != parts[i] {
			return false
		}
	}
	return len(pattern) == len(parts)
}

func encodePath(parts []string) string {
	return (&url.URL{Path: "/" + strings.Join(parts, "/")}).EscapedPath()
}

var topArgs = lazyregexp.New(`^[A-Za-z, -]*$`)

func topQuery(q url.Values) error {
	for _, s := range q["ps_args"] {
		if !topArgs.MatchString(s) {
			return refuse(ruleTopArgs, "the options %q of ps are not possible in a sandbox", s)
		}
	}
	return nil
}

func startQuery(q url.Values) error {
	for _, k := range []string{"checkpoint", "checkpoint-dir"} {
		if strings.Join(q[k], "") != "" {
			return refuse(ruleCheckpoint, "a start from a checkpoint is not possible in a sandbox")
		}
	}
	return nil
}

func importQuery(q url.Values) error {
	for _, s := range q["fromSrc"] {
		if s != "" && s != "-" {
			return refuse(ruleBuildRemote, "the engine does not fetch %q", s)
		}
	}
	return nil
}

// harmlessBuildKeys are the other keys of a build, moby api/server/router/build/build_routes.go.
var harmlessBuildKeys = []string{
	"dockerfile", "q", "nocache", "forcerm", "rm", "pull", "memswap", "memory", "cpushares", "cpuperiod", "cpuquota", "cpusetcpus",
	"cpusetmems", "t", "extrahosts", "shmsize", "isolation", "ulimits", "buildargs", "labels", "cachefrom", "version", "target", "session",
	"buildid", "platform", "outputs", "squash",
}

func buildQuery(q url.Values) error {
	for key, values := range q {
		if slices.Contains(harmlessBuildKeys, key) {
			continue
		}
		for _, v := range values {
			if err := buildOption(key, v); err != nil {
				return err
			}
		}
		if strings.Join(values, "") == "" {
			delete(q, key)
		}
	}
	return nil
}

func buildOption(key, v string) error {
	switch {
	case v == "":
		return nil
	case key == "networkmode":
		_, err := networkMode(nil, key, v)
		return err
	case key == "remote":
		// The context is the client's: in its session, or in a second request.
		if v != "client-session" && v != "upload-request" {
			return refuse(ruleBuildRemote, "the engine does not fetch %q", v)
		}
		return nil
	case key == "securityopt":
		return refuse(ruleSecurityOpt, "the security option %q of a build is not possible in a sandbox", v)
	case key == "cgroupparent":
		return refuse(ruleCgroupParent, "the control group %q of a build is not possible in a sandbox", v)
	}
	return refuse(ruleBuildOption, "unknown build option %q", key)
}

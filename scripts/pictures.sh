#!/bin/sh
# The pictures of README and docs: the demo goes through a pull request, and its body and report are looked at by the
# image's browser. The engine has to run, and the image to be built.
set -eu
cd "$(dirname "$0")/.."

pages=$(mktemp -d)
box=
trap 'rm -rf "$pages"; [ -z "$box" ] || docker rm -f "$box" >/dev/null' EXIT
SANDBOX_AGENT_PICTURES=$pages go test -tags e2e -count=1 -timeout 10m -run '^TestTheWholeWay$' ./e2e
image=$(./bin/sandbox-agent image build | tail -n 1)
mkdir -p docs
# shot NAME WIDTH HEIGHT: a page as the browser shows it.
shot() {
	box=$(docker create --entrypoint /usr/local/bin/chromium "$image" --headless --hide-scrollbars --window-size="$2,$3" --screenshot=/tmp/shot.png "file:///tmp/pages/$1.html")
	docker cp -q "$pages/." "$box:/tmp/pages"
	docker start -a "$box" >/dev/null 2>&1
	docker cp -q "$box:/tmp/shot.png" "docs/$1.png"
	docker rm "$box" >/dev/null
	box=
}
shot body 980 930
shot report 1100 1000

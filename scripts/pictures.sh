#!/bin/sh
# Makes the pictures of README and docs: the image's browser visits the demo's pull request and report. It needs a running
# engine and a built image.
set -eu
cd "$(dirname "$0")/.."

pages=$(mktemp -d)
box=
trap 'rm -rf "$pages"; [ -z "$box" ] || docker rm -f "$box" >/dev/null' EXIT
SANDBOX_AGENT_PICTURES=$pages go test -tags e2e -count=1 -timeout 10m -run '^TestTheWholeWay$' ./e2e
image=$(./bin/sandbox-agent image build --with browser | tail -n 1)
mkdir -p docs
# shot NAME WIDTH HEIGHT: takes a picture of a page.
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

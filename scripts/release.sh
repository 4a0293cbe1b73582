#!/bin/sh
# Builds a release into dist/ and checks it: a tagged commit as that version, any other as a snapshot. PUBLISH=yes with a
# token in GITHUB_TOKEN publishes it. IMAGES=REPOSITORY pushes the images of boxes for this machine's architecture, and the
# release's programs pull them by digest.
# Usage: release.sh GORELEASER SYFT
set -eu
goreleaser=$(realpath "$1")
syft=$(realpath "$2")
cd "$(dirname "$0")/.."
if ! [ -d .git ]; then
	echo "release.sh: run it in a clone, not in a linked worktree: there Go records no commit in a program, and its version would be unknown" >&2
	exit 1
fi
# goreleaser needs the name of a remote.
if ! git ls-remote --get-url >/dev/null 2>&1; then
	export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/sandbox-agent/sandbox-agent
fi
# The same commit gives the same bytes: the man pages' date and file modes do not depend on this machine.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
umask 022
stage=.cache/release
own=$(go env GOARCH)

# A release embeds the guest for both architectures. The other guest is removed afterwards: `make build` would embed it
# when it is stale.
case $own in
amd64) other=arm64 ;;
*) other=amd64 ;;
esac
trap 'rm -f image/entrypoint/*-linux-"$other".gz image/entrypoint/*-linux-"$other".sum image/entrypoint/released.json' EXIT
"${MAKE:-make}" "entrypoint-$other" "entrypoint-$own"

rm -rf "$stage"
mkdir -p "$stage/completions" "$stage/guest" "$stage/tools" "$stage/man-deb"
for arch in amd64 arm64; do
	for program in entrypoint guest; do
		cp "image/entrypoint/$program-linux-$arch.gz" "$stage/"
		gzip -dc "$stage/$program-linux-$arch.gz" >"$stage/guest/$program-linux-$arch"
	done
done
CGO_ENABLED=0 go build -trimpath -buildvcs=true -o "$stage/tools/sandbox-agent" ./cmd/sandbox-agent
if [ -n "${IMAGES-}" ]; then
	digests=
	for parts in none claude-code codex opencode claude-code,browser codex,browser opencode,browser all; do
		name=$("$stage/tools/sandbox-agent" image build --with $parts | tail -n 1)
		docker tag "$name" "$IMAGES:${name##*:}"
		digest=$(docker push "$IMAGES:${name##*:}" | sed -n 's/.* digest: \(sha256:[0-9a-f]*\) .*/\1/p')
		digests="$digests${digests:+, }\"${name##*-}\": \"${digest:?not pushed}\""
	done
	printf '{"repository": "%s", "digests": {%s}}\n' "$IMAGES" "$digests" >image/entrypoint/released.json
fi
"$stage/tools/sandbox-agent" man "$stage/man"
"$stage/tools/sandbox-agent" completion bash >"$stage/completions/sandbox-agent.bash"
"$stage/tools/sandbox-agent" completion zsh >"$stage/completions/_sandbox-agent"
"$stage/tools/sandbox-agent" completion fish >"$stage/completions/sandbox-agent.fish"
cp "$stage"/man/* "$stage/man-deb/"
gzip -9 -n "$stage"/man-deb/* # as Debian wants its pages

# The Makefile has the tool's version.
ln -sf "$syft" "$stage/tools/syft"
PATH=$PWD/$stage/tools:$PATH
export PATH
if ! git describe --exact-match --tags HEAD >/dev/null 2>&1; then
	if [ "${PUBLISH-}" = yes ]; then
		echo "release.sh: no tag names this commit, and only a tagged one is published: git tag -s v1.2.3" >&2
		exit 1
	fi
	"$goreleaser" release --clean --snapshot --parallelism 2
elif [ "${PUBLISH-}" = yes ]; then
	"$goreleaser" release --clean --parallelism 2
else
	"$goreleaser" release --clean --skip=publish,announce --parallelism 2
fi
# Its demo needs an engine.
./scripts/engine.sh status >/dev/null 2>&1 || {
	trap 'rm -f image/entrypoint/*-linux-"$other".gz image/entrypoint/*-linux-"$other".sum; ./scripts/engine.sh stop' EXIT
	./scripts/engine.sh start
}
go test -tags release -count=1 -timeout 30m -v ./scripts/released

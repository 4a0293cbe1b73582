#!/bin/sh
# Regenerates generated and golden files, and fails if one changes. Uncommitted earlier changes do not count.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

git rev-parse --git-dir >/dev/null # without a repository there is nothing to compare by
tree() { # every file that is tracked or could be, with its content
	git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum 2>/dev/null || true # a deleted one is listed as well
}
tree >"$dir/before"

for from in $(git grep -l '^//go:generate' -- '*.go' | xargs -n 1 dirname | sort -u); do
	if grep -qs '"npm"' "$from"/*_generate.go && ! command -v npm >/dev/null; then
		echo "generated.sh: NOT CHECKED, no npm on this machine: $from" >&2
		continue
	fi
	go generate "./$from"
done
goldens=$(git grep -l 'flag.Bool("update"' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's|^|./|')
# shellcheck disable=SC2086 # a list of packages
go test -short -count=1 $goldens -update >"$dir/out" 2>&1 || {
	cat "$dir/out"
	exit 1
}

tree >"$dir/after"
if ! cmp -s "$dir/before" "$dir/after"; then
	echo "generated.sh: these are not as their source makes them (they are now; look at the difference):" >&2
	diff "$dir/before" "$dir/after" | sed -n 's/^> [0-9a-f]*  /  /p' >&2
	exit 1
fi

# Runs in a sandbox, as its user: writes the tree of the clone $1, and its objects that the tree $2 does not have; where that is "-", only what the clone is.
# $3 names the clone if it has no name yet: another name is a clone that was made anew. $4 bounds files that git does not know, in KiB.
set -eu
cd "$1"
# The clone's git directory, which a file names where it is a worktree.
own=$PWD/.git
[ ! -f .git ] || own=$(sed -n 's/^gitdir: //p' .git)
d="${HOME:-/tmp}/.sandbox-agent/git"
mkdir -p "$d/info" 2>/dev/null || { d="/tmp/.sandbox-agent-$(id -u)/git" && mkdir -p "$d/info"; }
# A repository of its own beside the clone's: no setting, hook or filter of that one counts, and its index stays as it is.
begin() {
	rm -rf "$d" && mkdir -p "$d/objects/info" "$d/refs" "$d/info"
	[ ! -d "$own/objects" ] || printf '%s\n' "$own/objects" >"$d/objects/info/alternates"
	printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n' >"$d/config"
	# What the clone's index knows is not read again, but for files as young as it is: by its time git knows those.
	[ "${1-}" = anew ] || cp -p "$own/index" "$d/index" 2>/dev/null || :
	echo 'ref: refs/heads/none' >"$d/HEAD"
}
export GIT_DIR="$d" GIT_WORK_TREE="$PWD" GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1
g() {
	git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 -c core.looseCompression=1 -c core.fsync=none -c core.quotePath=false "$@"
}
exclude() {
	{
		cat "$own/info/exclude" 2>/dev/null || :
		printf '%s\n' node_modules/ __pycache__/ .venv/ venv/
		sed 's/[][\\*?!#]/\\&/g; s/^\.//; s/ $/\\ /' "$d/large"
	} >"$d/info/exclude"
}
# What has changed since the last time, and of it what is large: to look at it costs a third of a commit.
tree() {
	: >"$d/large"
	exclude
	g ls-files -z --modified --deleted --others --exclude-standard >"$d/changed"
	if [ -s "$d/tree" ] && [ ! -s "$d/changed" ]; then
		cat "$d/tree"
		return
	fi
	# A name with a line break would be several rules: such a file is taken whatever its size.
	sed -z 's/^/.\//' "$d/changed" | xargs -0 sh -c '[ $# = 0 ] || find "$@" -prune -type f -size +"$0"k ! -path "*
*" -print 2>/dev/null || :' "$4" >"$d/large"
	exclude
	{ g add -A ${lenient-} . >/dev/null || [ -n "${lenient-}" ]; } && g write-tree >"$d/tree.new" && mv "$d/tree.new" "$d/tree" && cat "$d/tree"
}
name=$own/sandbox-agent
[ -s "$name" ] && [ -f "$d/HEAD" ] || begin
[ -s "$name" ] || {
	mkdir -p "$own"
	echo "$3 $(git --git-dir="$own" rev-parse --verify --quiet HEAD)" >"$name"
}
if [ "$2" = - ]; then
	echo "- $(head -n 1 "$name")"
	exit
fi
# A file that cannot be read keeps no other out.
t=$(tree "$@" 2>"$d/said") || { begin anew && t=$(tree "$@" 2>"$d/said"); } || { lenient=--ignore-errors && t=$(tree "$@" 2>"$d/said"); } || {
	cat "$d/said" >&2
	exit 1
}
echo "$t $(head -n 1 "$name")"
# Large files that are in no commit, and those that cannot be read, for who is told of them.
[ -z "${lenient-}" ] || sed -n 's/^error: unable to index file .\(.*\).$/\1/p' "$d/said" | head -n 20
while IFS= read -r f; do
	g ls-files --error-unmatch -- ":(top,literal)${f#./}" >/dev/null 2>&1 || printf '%s\n' "${f#./}"
done <"$d/large" | head -n 20
echo .
if [ "$t" != "$2" ]; then
	{
		echo "$t"
		! g cat-file -e "$2" 2>/dev/null || echo "^$2"
	} | g pack-objects --revs --stdout --thin -q
fi

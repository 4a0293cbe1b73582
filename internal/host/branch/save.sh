# Runs in a sandbox, as its user: writes the tree of the clone $1, and its objects that the tree $2 does not have; where that is "-", only what the clone is.
# $3 names the clone if it has no name yet: another name is a clone that was made anew. $4 bounds files that git does not know, in KiB.
# It follows each command: a process more is a hundredth of what it costs, so that the shell does what it can by itself.
set -eu
cd "$1"
[ ! -e .sandbox-agent-clone/.git ] || {
	echo 'its clone was not made whole: `sandbox-agent reset` makes it anew' >&2
	exit 1
}
# The clone's git directory, which a file names where it is a worktree.
own=$PWD/.git
[ ! -f .git ] || own=$(sed -n 's/^gitdir: //p' .git)
d="${HOME:-/tmp}/.sandbox-agent/git"
[ -w "$d/info" ] || mkdir -p "$d/info" 2>/dev/null || { d="/tmp/.sandbox-agent-$(id -u)/git" && mkdir -p "$d/info"; }
# A repository of its own beside the clone's: no setting, hook or filter of that one counts, and its index stays as it is.
begin() {
	rm -rf "$d" && mkdir -p "$d/objects/info" "$d/refs" "$d/info"
	[ ! -d "$own/objects" ] || printf '%s\n' "$own/objects" >"$d/objects/info/alternates"
	printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n' >"$d/config"
	# What the clone's index knows is not read again, but for files as young as it is: by its time git knows those.
	[ "${1-}" = anew ] || cp -p "$own/index" "$d/index" 2>/dev/null || :
	echo 'ref: refs/heads/none' >"$d/HEAD"
	exclude
	# What somebody told the clone's git not to look at counts here.
	for bit in assume-unchanged skip-worktree; do
		g ls-files -v -z 2>/dev/null | sed -zn 's/^[a-zS] //p' | g update-index -z --no-$bit --stdin 2>/dev/null || :
	done
}
export GIT_DIR="$d" GIT_WORK_TREE="$PWD" GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_LITERAL_PATHSPECS=1
export GIT_AUTHOR_NAME=- GIT_AUTHOR_EMAIL=- GIT_COMMITTER_NAME=- GIT_COMMITTER_EMAIL=-
g() {
	git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 -c core.compression=1 -c pack.window=2 -c core.fsync=none -c core.quotePath=false -c core.excludesFile="$own/info/exclude" \
		-c core.untrackedCache=true -c core.protectHFS=true -c status.showUntrackedFiles=all "$@"
}
exclude() {
	{
		printf '%s\n' node_modules/ __pycache__/ .venv/ venv/
		[ ! -s "$d/large" ] || sed 's/[][\\*?!#]/\\&/g; s/^\.//; s/ $/\\ /' "$d/large"
	} >"$d/info/exclude"
}
changed() {
	: >"$d/changed" >"$d/nested"
	g status --porcelain -z --no-renames --ignore-submodules=dirty >"$d/status" || return 1
	[ ! -s "$d/status" ] || sed -z '/^?? .*\/$/w '"$d/nested"'
s/^.../.\//' "$d/status" >"$d/changed"
}
# A repository that was made inside is its files, as any folder: git takes none of a folder with a .git, unless its index has one of it. A submodule stays one.
nested() {
	subs=$(g config -f .gitmodules -z --get-regexp '^submodule\..*\.path$' 2>/dev/null | sed -z 's/^[^\n]*\n//' | tr '\0' '\n')
	sed -z 's/^...//; s/\/$//' "$d/nested" | SUBS="
$subs
" xargs -0 sh -c 'for p; do
	case $SUBS in *"
$p
"*) ;; *) printf "100644 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 0\t%s/.sandbox-agent.seed\0" "$p" ;; esac
done' sh >"$d/seeds"
	# The cache of untracked files would go on with the folder as it was.
	[ -s "$d/seeds" ] && g -c core.untrackedCache=false update-index -z --index-info <"$d/seeds" && changed
}
# What a sparse checkout of the clone has taken away is not deleted: it is as the clone's index has it.
sparse() {
	[ -s "$own/info/sparse-checkout" ] || [ -s "$d/away" ] || return 0
	git --git-dir="$own" -c core.fsmonitor=false ls-files -t -s -z | sed -zn 's/^S //p' | xargs -0 sh -c 'for e; do
	p=./${e#*"	"}
	[ -e "$p" ] || [ -L "$p" ] || printf "%s\0" "$e"
done' sh >"$d/away" &&
		g ls-files -t -z | sed -zn 's/^S //p' | g update-index -z --no-skip-worktree --stdin &&
		g update-index -z --index-info <"$d/away" && sed -z 's/^[^\t]*\t//' "$d/away" | g update-index -z --skip-worktree --stdin
}
# What the clone's git was told of since the last time is known here, too, though it be ignored or large: by a name of no object, which no file has.
known() {
	[ "$d/known" -nt "$own/index" ] && return
	: >"$d/known"
	t=4b825dc642cb6eb9a060e54bf8d69288fbee4904
	if [ -s "$d/tree" ]; then read -r t <"$d/tree"; else [ ! -s "$d/index" ] || return 0; fi
	GIT_ALTERNATE_OBJECT_DIRECTORIES="$d/objects" git --git-dir="$own" -c core.fsmonitor=false diff-index --cached -z --name-only --no-renames --diff-filter=A --ignore-submodules=all "$t" 2>/dev/null |
		sed -z 's/^/100644 0000000000000000000000000000000000000001 0\t/' >"$d/seeds"
	[ ! -s "$d/seeds" ] || g update-index -z --index-info <"$d/seeds" || :
	# And what it was told to forget, of the commit that the clone was made at, is not known where it is ignored.
	read -r _ base <"$name"
	[ -z "$base" ] || git --git-dir="$own" -c core.fsmonitor=false diff-index --cached -z --name-only --no-renames --diff-filter=D --ignore-submodules=all "$base" 2>/dev/null |
		sed -z 's/^/.\//' | GIT_LITERAL_PATHSPECS=0 g check-ignore -z --stdin --no-index | g update-index -z --force-remove --stdin || :
}
# What has changed since the last time, and of it what is large: to look at it costs a third of a commit.
tree() {
	[ ! -s "$d/large" ] || { : >"$d/large" && exclude; }
	sparse && known && changed || return 1
	if [ -s "$d/tree" ] && [ ! -s "$d/status" ]; then
		read -r t <"$d/tree" && echo "$t"
		return
	fi
	deep=0 # of one in another
	while [ -s "$d/nested" ] && [ "$deep" -lt 20 ] && nested; do deep=$((deep + 1)); done
	# A name with a line break would be several rules: such a file is taken whatever its size.
	xargs -0 sh -c '[ $# = 0 ] || find "$@" -prune -type f -size +"$0"k ! -path "*
*" -print 2>/dev/null || :' "$4" <"$d/changed" >"$d/large"
	[ ! -s "$d/large" ] || exclude
	# Few names are added by themselves: git looks at nothing else. It refuses all of them where one is large or gone since.
	{ [ "$(wc -c <"$d/changed")" -lt 10000 ] && g add -A --pathspec-from-file="$d/changed" --pathspec-file-nul; } ||
		g add -A ${lenient-} . || [ "$?${lenient-}" = 1--ignore-errors ] || return 1
	# The commit is what the next status is beside.
	t=$(g write-tree) && c=$(g commit-tree "$t" </dev/null) && echo "$c" >"$d/HEAD" && echo "$t" >"$d/tree" && echo "$t"
}
name=$own/sandbox-agent
[ -s "$name" ] && [ -f "$d/HEAD" ] || begin
[ -s "$name" ] || {
	mkdir -p "$own"
	echo "$3 $(git --git-dir="$own" rev-parse --verify --quiet HEAD)" >"$name"
}
read -r clone <"$name"
if [ "$2" = - ]; then
	echo "- $clone"
	exit
fi
# A file that cannot be read keeps no other out. What git knows by either index is not forgotten as long as that can be read.
t=$(tree "$@" 2>"$d/said") || { lenient=--ignore-errors && t=$(tree "$@" 2>"$d/said"); } || { begin && t=$(tree "$@" 2>"$d/said"); } || { begin anew && t=$(tree "$@" 2>"$d/said"); } || {
	cat "$d/said" >&2
	[ -s "$d/said" ] || echo "is the disk of $d full?" >&2
	exit 1
}
echo "$t $clone"
# Large files that are in no commit, those that cannot be read, and submodules with files or commits that only the sandbox has, for who is told of them.
[ -z "${lenient-}" ] || sed -n "s/^error: unable to index file '\(.*\)'$/\1/p; s/^error: unable to add '\(.*\)' to index$/\1/p; s/^error: '\(.*\)' does not have a commit checked out$/\1/p" "$d/said" | sort -u | head -n 20
[ ! -s "$d/large" ] || while IFS= read -r f; do
	g ls-files --error-unmatch -- "${f#./}" >/dev/null 2>&1 || printf '%s\n' "${f#./}"
done <"$d/large" | head -n 20
[ ! -f .gitmodules ] || g ls-files -s -z | sed -zn 's/^160000 [^\t]*\t//p' | env -u GIT_DIR -u GIT_WORK_TREE xargs -0 sh -c 'for p; do
	[ -e "$p/.git" ] || continue
	git -C "$p" -c core.fsmonitor=false diff --quiet --no-ext-diff HEAD -- 2>/dev/null || [ "$?" != 1 ] || { printf "%s/\n" "$p"; continue; }
	[ -z "$(git -C "$p" rev-list -n 1 HEAD --not --remotes --tags --glob=refs/sandbox-agent/base 2>/dev/null)" ] || printf "%s/\n" "$p"
done' sh | head -n 20
echo .
[ "$t" != "$2" ] || exit 0
# The objects of what differs, the old tree being what they can be deltas of. One that is not here any more is as if it were empty.
old=$2
g diff-tree -r -t --no-renames "$old" "$t" >"$d/new" 2>/dev/null || {
	old=$(g hash-object -t tree /dev/null)
	g diff-tree -r -t --no-renames "$old" "$t" >"$d/new"
}
{
	printf '%s\n' "-$old" "$t"
	sed -n 's/^:[0-7]* \(100\|120\|040\)[0-7]* [0-9a-f]* \([0-9a-f]*\) .\t/\2 /p' "$d/new"
} | g pack-objects --stdout -q

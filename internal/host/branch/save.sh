# Runs in a sandbox, as its user: writes the tree of the clone $1, and its objects that the tree $2 does not have; where that is "-", only what the clone is.
# $3 names the clone if it has no name yet: another name is a clone that was made anew. $4 bounds files that git does not know, in KiB.
# $5 bounds the commits that come along, 0 meaning none: those of HEAD that neither $6 nor $7 has, which are commits or "-".
# It follows each command: a process more is a hundredth of what it costs, so that the shell does what it can by itself.
set -eu
cd "$1" 2>/dev/null || { chmod u+rwx "$1" && cd "$1"; }
{ [ -r . ] && [ -w . ]; } || chmod u+rwx . 2>/dev/null || :
[ ! -e .sandbox-agent-clone/.git ] || {
	echo 'its clone is incomplete: `sandbox-agent reset --force` recreates it' >&2
	exit 1
}
# The clone's git directory, which a file names where it is a worktree.
own=$PWD/.git
[ ! -f .git ] || own=$(sed -n 's/^gitdir: //p' .git)
# Git waits forever for a FIFO that it opens, and what it opens first is what a command may have replaced.
irregular() {
	for f; do
		[ ! -e "$f" ] || [ -f "$f" ] || [ -d "$f" ] || [ "${f##*/}" = fsmonitor--daemon.ipc ] || [ "$f" -ef /dev/null ] || return 0
	done
	return 1
}
ref=
! irregular "$own"/* "$own"/info/* .gitignore .gitattributes .gitmodules && { [ ! -f "$own/HEAD" ] || read -r ref <"$own/HEAD" || :; } && ! irregular "$own/${ref#ref: }" || {
	printf '%s is not a regular file: remove it in the sandbox, with: rm %s\n' "$f" "'$f'" >&2
	exit 1
}
d="${HOME:-/tmp}/.sandbox-agent/git"
! irregular "$d"/* "$d"/info/* || rm -rf "$d"
[ -w "$d/info" ] || mkdir -p "$d/info" 2>/dev/null || { d="/tmp/.sandbox-agent-$(id -u)/git" && mkdir -p "$d/info"; }
# A repository of its own beside the clone's: no setting, hook or filter of that one counts, and its index stays as it is.
begin() {
	rm -rf "$d" && mkdir -p "$d/objects/info" "$d/refs" "$d/info"
	[ ! -d "$own/objects" ] || printf '%s\n' "$own/objects" >"$d/objects/info/alternates"
	printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n' >"$d/config"
	# What the clone's index knows is not read again, but for files as young as it is: by its time git knows those.
	[ "${1-}" = anew ] || cp -p "$own/index" "$d/index" 2>/dev/null || :
	echo 'ref: refs/heads/none' >"$d/HEAD"
	built >"$d/built"
	exclude
	# What somebody told the clone's git not to look at counts here.
	for bit in assume-unchanged skip-worktree; do
		g ls-files -v -z 2>/dev/null | sed -zn 's/^[a-zS] //p' | g update-index -z --no-$bit --stdin 2>/dev/null || :
	done
}
export LC_ALL=C GIT_DIR="$d" GIT_WORK_TREE="$PWD" GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_LITERAL_PATHSPECS=1
export GIT_AUTHOR_NAME=- GIT_AUTHOR_EMAIL=- GIT_COMMITTER_NAME=- GIT_COMMITTER_EMAIL=-
g() {
	git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 -c core.compression=1 -c pack.window=2 -c core.bigFileThreshold=10m -c core.fsync=none -c core.quotePath=false -c core.excludesFile="$own/info/exclude" \
		-c core.untrackedCache=false -c core.protectHFS=true -c status.showUntrackedFiles=all "$@"
}
# What no clone keeps, ignored or not.
built() { printf '%s\n' node_modules/ __pycache__/ .venv/ venv/; }
exclude() {
	{
		built
		[ ! -s "$d/large" ] || sed 's/[][\\*?!#]/\\&/g; s/^\.//; s/ $/\\ /' "$d/large"
		# A line break in a name is any character there.
		[ ! -s "$d/closed" ] || sed -z 's/[][\\*?!#]/\\&/g; s/^/\//; s/ $/\\ /; s/\n/?/g' "$d/closed" | tr '\0' '\n'
	} >"$d/info/exclude"
}
changed() {
	: >"$d/changed" >"$d/nested"
	g status --porcelain -z --no-renames --ignore-submodules=dirty >"$d/status" 2>"$d/unseen" || { cat "$d/unseen" >&2 && return 1; }
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
	[ -s "$d/seeds" ] && g update-index -z --index-info <"$d/seeds" && changed
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
	at=$(stat -c '%i %s %y %z' "$own/index" 2>/dev/null) || at=none
	[ ! -s "$d/known" ] || { read -r seen <"$d/known" && [ "$seen" != "$at" ] || return 0; }
	rm -f "$d/known"
	git --git-dir="$own" -c core.fsmonitor=false ls-files -u -z 2>/dev/null | sed -z 's/^[^\t]*\t//' | sort -zu | tr '\n\0' '?\n' >"$d/unmerged"
	t=4b825dc642cb6eb9a060e54bf8d69288fbee4904
	if [ -s "$d/tree" ]; then read -r t <"$d/tree"; else [ ! -s "$d/index" ] || return 0; fi
	GIT_ALTERNATE_OBJECT_DIRECTORIES="$d/objects" git --git-dir="$own" -c core.fsmonitor=false diff-index --cached -z --name-only --no-renames --diff-filter=A --ignore-submodules=all "$t" 2>/dev/null |
		sed -z 's/^/100644 0000000000000000000000000000000000000001 0\t/' >"$d/seeds"
	[ ! -s "$d/seeds" ] || g update-index -z --index-info <"$d/seeds" || :
	# And what it was told to forget, of the commit that the clone was made at, is not known where it is ignored.
	read -r _ base <"$name"
	[ -z "$base" ] || git --git-dir="$own" -c core.fsmonitor=false diff-index --cached -z --name-only --no-renames --diff-filter=D --ignore-submodules=all "$base" 2>/dev/null |
		sed -z 's/^/.\//' | GIT_LITERAL_PATHSPECS=0 g check-ignore -z --stdin --no-index | g update-index -z --force-remove --stdin || :
	echo "$at" >"$d/known"
}
# What git could not look at, by what status has said of it, as lines CODE<tab>PATH: of a path in a folder that cannot be looked into, the folder.
unseen() {
	sed -n "/^warning: unable to access /d; /\/\.git[a-z]*': /d
		s/^warning: could not open directory '\(.*\)\/': \(.*\)$/\2\t\1/; t known
		s/^warning: could not open directory '\(.*\)$/too long\t\1/; t known
		s/^\(.*\): \([^:]*\)$/\2\t\1/; t known
		s/^/failed\t/
		:known
		s/^Permission denied\t/closed\t/; s/^[Ff]ile *name too long\t/long\t/; s/^too long\t/long\t/; p" "$d/unseen" |
		while IFS='	' read -r code p; do
			top "$p" || printf '%s\t%s\n' "$code" "$p"
		done | sort -u
}
# The first folder on the way to $1 that cannot be looked into, as a line of unseen.
top='top() {
	rest=$1/ at=
	while [ -n "$rest" ]; do
		at=$at${rest%%/*} rest=${rest#*/}
		[ ! -d "$at" ] || { [ -r "$at" ] && [ -x "$at" ]; } || { printf "closed\t%s/\n" "$(printf %s "$at" | tr "\n" "?")" && return; }
		at=$at/
	done
	return 1
}
'
eval "$top"
# What is not in git's index and cannot be looked at, also as lines of unseen: one of them would end git. Who has removed one since is gone by then.
closed() {
	sed -zn 's/^?? //p' "$d/status" | xargs -0 sh -c "$top"'for p; do
	[ -e "$p" ] || [ -L "$p" ] || { printf "%s\0" "$p" >&3 && { top "$p" || [ "${#p}" -lt 4000 ] || printf "long\t%s\n" "$p"; }; }
done' sh >"$d/shut" 3>"$d/closed"
	[ ! -s "$d/closed" ] || exclude
}
# What has changed since the last time, and of it what is large: to look at it costs a third of a commit.
tree() {
	[ ! -s "$d/large" ] && [ ! -s "$d/closed" ] || { : >"$d/large" >"$d/closed" && exclude; }
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
	[ -z "${lenient-}" ] || closed
	# Few names are added by themselves: git looks at nothing else. It refuses all of them where one is large or gone since.
	{ [ -z "${lenient-}" ] && [ "$(wc -c <"$d/changed")" -lt 10000 ] && g add -A --pathspec-from-file="$d/changed" --pathspec-file-nul; } ||
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
read -r clone _ <"$name"
head=$(git --git-dir="$own" rev-parse --verify --quiet "HEAD^{commit}") || head=-
if [ "$2" = - ]; then
	echo "- $clone $head"
	exit
fi
# A file that cannot be read keeps no other out. What git knows by either index is not forgotten as long as that can be read.
t=$(tree "$@" 2>"$d/said") || { lenient=--ignore-errors && t=$(tree "$@" 2>"$d/said"); } || { begin && t=$(tree "$@" 2>"$d/said"); } || { begin anew && t=$(tree "$@" 2>"$d/said"); } || {
	cat "$d/said" >&2
	[ -s "$d/said" ] || echo "is the disk of $d full?" >&2
	exit 1
}
# The commits since, the oldest first, as lines COMMIT TREE. One that is missing or takes too long keeps no file from being saved.
history() {
	: >"$d/commits"
	[ "$1" != 0 ] && [ "$head" != - ] && [ "$head" != "$3" ] || return 0
	for c in "$2" "$3"; do
		[ "$c" = - ] || ! g cat-file -e "$c^{commit}" || set -- "$@" "^$c"
	done 2>/dev/null
	most=$1 && shift 3
	if [ -e "$own/shallow" ]; then cp "$own/shallow" "$d/shallow"; else rm -f "$d/shallow"; fi
	timeout 20 git -c core.commitGraph=false rev-list --topo-order --reverse --max-count="$most" --format='%H %T' "$head" "$@" 2>/dev/null >"$d/revs" &&
		sed '/^commit /d' "$d/revs" >"$d/commits"
}
history "${5-0}" "${6--}" "${7--}" || { : >"$d/commits" && head=?$head; }
echo "$t $clone $head"
# What is not in the tree, as lines CODE<tab>PATH, for the user. Of a submodule with many changed files nine are named, and then itself.
{
	[ ! -s "$d/unseen" ] || unseen
	[ ! -s "$d/closed" ] || cat "$d/shut"
	[ -z "${lenient-}" ] || sed -n "s/^error: unable to index file '\(.*\)'$/closed\t\1/p; s/^error: unable to add '\(.*\)' to index$/name\t\1/p; s/^error: '\(.*\)' does not have a commit checked out$/repository\t\1/p" "$d/said"
} | sort -u
[ ! -s "$d/large" ] || while IFS= read -r f; do
	g ls-files --error-unmatch -- "${f#./}" >/dev/null 2>&1 || printf 'large\t%s\n' "${f#./}"
done <"$d/large"
[ ! -f .gitmodules ] || g ls-files -s -z | sed -zn 's/^160000 [^\t]*\t//p' | env -u GIT_DIR -u GIT_WORK_TREE xargs -0 sh -c 'for p; do
	[ -e "$p/.git" ] || { [ -z "$(ls -A "$p" 2>/dev/null)" ] || printf "submodule\t%s/\n" "$p"; continue; }
	files=$(git -C "$p" --no-optional-locks -c core.fsmonitor=false -c core.quotePath=false -c core.excludesFile="$0" status --porcelain --untracked-files=normal 2>/dev/null) || { printf "submodule\t%s/\n" "$p"; continue; }
	[ -z "$files" ] || printf "%s\n" "$files" | sed -n "10{s/.*/   /p;q;}; p" | while IFS= read -r f; do printf "submodule\t%s/%s\n" "$p" "${f#???}"; done
	[ -z "$(git -C "$p" rev-list -n 1 HEAD --branches --glob="refs/stas[h]" --not --remotes --tags --glob="refs/sandbox-agent/*" 2>/dev/null)" ] || printf "submodule-commits\t%s/\n" "$p"
done' "$d/built"
[ ! -s "$d/unmerged" ] || sed 's/^/unmerged\t/' "$d/unmerged"
echo .
[ ! -s "$d/commits" ] || sed 's/ .*//' "$d/commits" | g cat-file --batch
echo .
[ "$t" != "$2" ] || [ -s "$d/commits" ] || exit 0
# The objects of what differs from tree to tree, the old one being what they can be deltas of. One that is not here any more is as if it were empty.
old=$2
g cat-file -e "$old" 2>/dev/null || old=$(g hash-object -t tree /dev/null)
{
	last=$old
	while read -r _ next; do echo "$last $next" && last=$next; done <"$d/commits"
	echo "$last $t"
} | g diff-tree --stdin -r -t --no-renames >"$d/new"
{
	echo "-$old"
	sed 's/.* //' "$d/commits"
	echo "$t"
	sed -n 's/^:[0-7]* \(100\|120\|040\)[0-7]* [0-9a-f]* \([0-9a-f]*\) .\t/\2 /p' "$d/new"
} | g pack-objects --stdout -q

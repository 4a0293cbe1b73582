# Runs cells. Descriptor 3 brings "ID BYTES\nCODE", 4 takes what is said of them, a JSON line each. 0 to 2 belong to the cells.
# Both move out of the way of scripts, which take 3 and up for themselves.
# A cell may leave all loops, this one too, and an interrupt does: then it begins again. What a cell defines by the names of builtins counts for cells only.
# set -x of a cell is for cells: it is off in between, and on again with the next one.
# $? is what the cell before has ended with; in a list with && it ends no shell that has set -e.
# It is evaluated as one line: bash counts the lines of a cell from its own.
__sa_loop='
while
  { [[ $- != *x* ]] || { __sa_x="{ builtin set -x; __sa_last && builtin :; } 2>/dev/null;"; builtin set +x; }; } 2>/dev/null;
  builtin trap : INT;
  if [[ -n "${__sa_id-}" ]]; then
    if [[ -n "${__sa_int-}" ]]; then builtin printf "{\"id\":%s,\"ok\":false,\"code\":130,\"error\":\"Interrupted\"}\n" "$__sa_id" >&201;
    elif [[ "$__sa_c" = 0 ]]; then builtin printf "{\"id\":%s,\"ok\":true,\"code\":0}\n" "$__sa_id" >&201;
    else builtin printf "{\"id\":%s,\"ok\":false,\"code\":%s}\n" "$__sa_id" "$__sa_c" >&201; fi;
  fi;
  __sa_p=${__sa_c:-0}; [[ -z "${__sa_int-}" ]] || __sa_p=130;
  __sa_id= __sa_int= __sa_c=0;
  IFS=" " builtin read -r -u 200 __sa_id __sa_n;
do
  LC_ALL=C IFS= builtin read -r -d "" -N "$__sa_n" -u 200 __sa_code;
  builtin trap "{ __sa_int=1; break 999; } 2>/dev/null" INT;
  builtin printf "{\"id\":%s,\"began\":true}\n" "$__sa_id" >&201;
  __sa_code=${__sa_x-}$__sa_code __sa_x=;
  __sa_last && builtin :;
  builtin eval "$__sa_code" 200<&- 201>&-;
  { __sa_c=$?; } 2>/dev/null;
done;
{ [[ $- != *x* ]] || { __sa_x="{ builtin set -x; __sa_last && builtin :; } 2>/dev/null;"; builtin set +x; }; } 2>/dev/null;
if [[ -n "${__sa_id-}" ]]; then builtin eval "$__sa_loop"; fi'
__sa_loop=${__sa_loop//$'\n'/ }
__sa_last() { builtin return "$__sa_p"; }
trap : INT
exec 200<&3 201>&4 3<&- 4>&-
printf '{"ready":true}\n' >&201

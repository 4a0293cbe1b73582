# Runs cells. Descriptor 3 brings "ID BYTES\nCODE", 4 takes what is said of them, a JSON line each. 0 to 2 belong to the cells.
# An interrupt leaves all loops of the cell, and this one: it begins again.
__sa_loop='
while IFS=" " read -r -u 3 __sa_id __sa_n; do
  LC_ALL=C IFS= read -r -d "" -N "$__sa_n" -u 3 __sa_code
  trap "__sa_int=1; break 999" INT
  eval "$__sa_code" </dev/null 3<&- 4>&-
  __sa_c=$?
  trap : INT
  if [ "$__sa_c" = 0 ]; then printf "{\"id\":%s,\"ok\":true,\"code\":0}\n" "$__sa_id" >&4; else printf "{\"id\":%s,\"ok\":false,\"code\":%s}\n" "$__sa_id" "$__sa_c" >&4; fi
done
if [ -n "${__sa_int-}" ]; then
  __sa_int=
  trap : INT
  printf "{\"id\":%s,\"ok\":false,\"code\":130,\"error\":\"Interrupted\"}\n" "$__sa_id" >&4
  eval "$__sa_loop"
fi'
trap : INT
printf '{"ready":true}\n' >&4
eval "$__sa_loop"

# Runs a program on a machine of its own, and puts back what the kernel does not: outside of that machine, as root.
# It may not outlive whoever started it: at the end of its standard input, the program and everything it started is killed.
#
# Arguments: CGROUP FOLDER TERMINAL INSIDE PROGRAM ARGUMENTS…
#   CGROUP    the name of the control group under which all pods run; made here, removed here
#   FOLDER    for temporary files and logs; removed, unless the program fails by itself
#   TERMINAL  the program's standard input
#   INSIDE    the script that sets the machine up and becomes the program
cgroup=$1 folder=$2 terminal=$3 inside=$4
shift 4
exec 3<&0 </dev/null
# Ctrl-C on a terminal reaches us as well, and our work begins when the others have ended. Not ignored, because what we
# start would ignore it too.
trap : INT HUP TERM

# One hierarchy (v2), or one each controller (v1).
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
  set -- /sys/fs/cgroup -- "$@"
else
  set -- /sys/fs/cgroup/* -- "$@"
fi
groups=
while [ "$1" != -- ]; do
  if [ -e "$1/cgroup.procs" ]; then
    mkdir -p "$1/$cgroup" || exit 125
    groups="$groups $1/$cgroup"
  fi
  shift
done
shift

unshare --net --mount --pid --fork --kill-child --mount-proc sh -c "$inside" inside "$@" <"$terminal" 3<&- &
machine=$!
(
  trap '' INT HUP TERM
  while read -r _; do :; done
  : >"$folder/abandoned"
  # The machine's first process, or else the one that waits for it: with the first, the kernel ends all others.
  read -r first <"/proc/$machine/task/$machine/children"
  kill -s KILL ${first:-"$machine"}
) <&3 >/dev/null 2>&1 &
owner=$!
exec 3<&-
while
  wait "$machine"
  code=$?
  # A signal ends a wait too.
  kill -s 0 "$machine" 2>/dev/null
do :; done
kill -s KILL "$owner" 2>/dev/null

for group in $groups; do
  # Two names may stand for one folder.
  [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} \;
done
if [ "$code" = 0 ] || [ -e "$folder/abandoned" ]; then
  rm -rf -- "$folder"
else
  echo "what was written is kept in $folder" >&2
fi
exit "$code"

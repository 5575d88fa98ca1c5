# Sets up a machine of its own, as its first process, and becomes the program: inside the namespaces that guard.sh made.
# It may not change anything outside: each mount is seen here alone, and ends with us.
#
# Arguments: PROGRAM ARGUMENTS…  Environment: BUSYBOX
set -e
# Data that is to be quick and to vanish; sockets; the links to the logs of containers, at a place the kubelet chooses.
for folder in /dev/shm /run /var/log; do
  mount -t tmpfs -o mode=0755 tmpfs "$folder"
done
# /var/lib/kubelet and /var/lib/cni are chosen by others too, and there must be no such folders afterwards.
mkdir /dev/shm/upper /dev/shm/work /dev/shm/sysctl
mount -t overlay -o lowerdir=/var/lib,upperdir=/dev/shm/upper,workdir=/dev/shm/work overlay /var/lib
# The kubelet sets what belongs to the whole machine: here it finds files that look the same.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
  copy="/dev/shm/sysctl/$(basename "$setting")"
  cat "/proc/sys/$setting" >"$copy"
  mount --bind "$copy" "/proc/sys/$setting"
done
"$BUSYBOX" ip link set lo up
exec "$@"

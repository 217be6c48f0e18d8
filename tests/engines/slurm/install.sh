# Installs Slurm and munge from Debian's packages where they are missing; needs root for that.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
missing=""
for program in munged slurmctld slurmd squeue taskset; do
  command -v "$program" >/dev/null || missing="$missing $program"
done
[ -z "$missing" ] && exit 0
cannot() { echo "the tests of the Slurm engine need$missing: $1" >&2; exit 1; }
command -v apt-get >/dev/null || cannot "there is no apt-get to install slurm-wlm and munge with"
[ "$(id -u)" = 0 ] || cannot "run 'apt-get install slurm-wlm munge util-linux' as root"
echo "== installing slurm-wlm and munge"
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -yqq --no-install-recommends slurm-wlm munge util-linux; } >/dev/null ||
  cannot "apt-get could not install slurm-wlm and munge"

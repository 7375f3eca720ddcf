#!/bin/bash
# `dnnc cluster detect` in made-up machines and jobs, and clusters through
# `dnnc show` and `dnnc check`.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
unset "${!SLURM_@}" "${!OMPI_@}" CUDA_VISIBLE_DEVICES
export CUDA_VISIBLE_DEVICES= DNNC_DETECT_ROOT=$work/root
mkdir -p root/proc/self root/sys/fs/cgroup/job/step

detect() { # on the cores $cpus; variables stand before
  taskset -c "$cpus" "$dnnc" cluster detect >out.cluster 2>err
}
says() { # text file what
  grep -qF -- "$1" "$2" || { cat "$2"; fail "$3: no '$1'"; }
}
ranks_are() { # number what
  "$dnnc" show out.cluster >shown 2>err || { cat out.cluster err; fail "$2: show"; }
  says "# $1 ranks" shown "$2"
}
cpus=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
printf 'MemTotal:        8388608 kB\nMemFree: 1 kB\n' >root/proc/meminfo

detect || { cat err; fail "a machine"; }
ranks_are 1 "a machine"
says "memory    = 8GiB             # memory of the machine" out.cluster memory

# Version 2: limits of the group and of those around it.
echo '0::/job/step' >root/proc/self/cgroup
echo 'max 100000' >root/sys/fs/cgroup/job/step/cpu.max
echo 'max' >root/sys/fs/cgroup/job/step/memory.max
echo '3221225472' >root/sys/fs/cgroup/job/memory.max
detect || { cat err; fail "an outer group"; }
says "memory    = 3GiB             # limit of the control group" out.cluster "outer group"
if [ "$(nproc)" -ge 2 ]; then
  all=$cpus cpus=$(taskset -cp $$ | sed 's/.*: //')
  echo '150000 100000' >root/sys/fs/cgroup/job/step/cpu.max
  detect || { cat err; fail "a quota"; }
  says "count: quota of the control group" out.cluster quota
  ranks_are 1 "a quota"
  cpus=$all
fi
# Version 1, a controller each.
printf '4:memory:/job\n3:cpu,cpuacct:/\n1:name=systemd:/x\n' >root/proc/self/cgroup
mkdir -p root/sys/fs/cgroup/memory/job root/sys/fs/cgroup/cpu,cpuacct
echo 1073741824 >root/sys/fs/cgroup/memory/job/memory.limit_in_bytes
echo 9223372036854771712 >root/sys/fs/cgroup/memory/memory.limit_in_bytes
echo -1 >root/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us
echo 100000 >root/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us
detect || { cat err; fail "version 1"; }
says "memory    = 1GiB             # limit of the control group" out.cluster "version 1"

# Jobs.
SLURM_JOB_NUM_NODES=3 SLURM_NTASKS_PER_NODE=1 detect || { cat err; fail "Slurm"; }
ranks_are 3 Slurm
says "count: SLURM_JOB_NUM_NODES" out.cluster Slurm
SLURM_JOB_NODELIST='gpu[01-16,20],login' SLURM_TASKS_PER_NODE='1(x18)' detect ||
  { cat err; fail "a list of nodes"; }
ranks_are 18 "a list of nodes"
OMPI_COMM_WORLD_SIZE=5 OMPI_COMM_WORLD_LOCAL_SIZE=1 detect || { cat err; fail "Open MPI"; }
ranks_are 5 "Open MPI"
for job in "SLURM_JOB_NODELIST=gpu[3-1]" "SLURM_JOB_NUM_NODES=2 SLURM_TASKS_PER_NODE=2,1" \
  "OMPI_COMM_WORLD_SIZE=5 OMPI_COMM_WORLD_LOCAL_SIZE=2" \
  "SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=100000"; do
  # shellcheck disable=SC2086
  env $job "$dnnc" cluster detect >out.cluster 2>err
  [ $? = 1 ] && [ ! -s out.cluster ] && grep -q "^dnnc: error" err ||
    { cat out.cluster err; fail "$job"; }
done

# GPUs.
mock_ready
gpus() { DNN_MOCK_DEVICES=$1 DNN_MOCK_NAME=$2 "$dnnc" cluster detect -o gpu.cluster 2>err; }
gpus 4 "NVIDIA H100 80GB HBM3" || { cat err; fail GPUs; }
[ -s err ] && fail "a known GPU: $(cat err)"
"$dnnc" show gpu.cluster >shown || fail "show of GPUs"
for line in "# 4 ranks" "target     = cuda" "flops_bf16 = 989.4T" "memory     = 80GiB" \
  "cores      = 132" "clock      = 1.98G" "link = 450GB/s"; do
  says "$line" shown GPUs
done
gpus 1 "Nothing 9000" || { cat err; fail "an unknown GPU"; }
says "no preset has 'Nothing 9000'" err "an unknown GPU"
"$dnnc" show gpu.cluster 2>err && fail "a cluster without rates"
says "'gpu' needs the setting 'flops_f32'" err "an unknown GPU"
DNN_MOCK_DEVICES=2 "$dnnc" cluster detect 2>err && fail "unequal GPUs"
says "GPUs of different kinds" err "unequal GPUs"
DNN_MOCK_FAIL=cuDeviceTotalMem_v2:1 gpus 4 x || { cat err; fail "a driver that fails"; }
says "device = core" gpu.cluster "a driver that fails"
says "# No GPU: cuDeviceTotalMem_v2: CUDA_ERROR" gpu.cluster "a driver that fails"

# A file is replaced or left alone.
cp gpu.cluster before
DNN_MOCK_NAME=one "$dnnc" cluster detect -o nowhere/gpu.cluster 2>err
[ $? = 1 ] || { cat err; fail "no folder"; }
SLURM_JOB_NODELIST='[' DNN_MOCK_NAME=one "$dnnc" cluster detect -o gpu.cluster 2>err && fail "a wrong job"
cmp -s gpu.cluster before || fail "a mistake changed the file"

# What `show` prints is a cluster file with the same hash.
for file in "$root"/models/*.cluster "$root"/tests/golden/clusters/good_*.cluster; do
  "$dnnc" show "$file" >one.cluster && "$dnnc" show one.cluster | cmp - one.cluster ||
    fail "show $file"
done

# The back end of a checked model follows from the devices: buffers of a GPU are
# aligned to more bytes.
for cluster in laptop h100x256; do
  "$dnnc" check "$root/models/mlp.dnn" --json --cluster "$root/models/$cluster.cluster" >$cluster.json ||
    fail "check on $cluster"
done
"$dnnc" check "$root/models/mlp.dnn" --json >without.json || fail "check"
cmp -s without.json laptop.json || fail "a cluster of CPUs changes the figures"
[ "$(field persistent_bytes h100x256.json)" -gt "$(field persistent_bytes laptop.json)" ] ||
  fail "buffers of GPUs are aligned as those of CPUs"
exit 0

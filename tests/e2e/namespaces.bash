# namespaces.bash -- N network namespaces on one bridge, each a machine of one
# rank for mpirun.  Usage: . namespaces.bash; namespaces_make PREFIX N
#
# Namespace PREFIXi has the address 10.79.0.(i+1) and the host name PREFIXi.

namespaces_allowed() {
  [ "$(id -u)" = 0 ] && command -v ip >/dev/null &&
    ip netns add "$1" 2>/dev/null && ip netns del "$1" &&
    unshare --uts true 2>/dev/null
}
namespaces_make() { # prefix, how many
  local i ns
  ns_prefix=$1 ns_count=$2
  ip netns add "${ns_prefix}b" || return 1
  ip -n "${ns_prefix}b" link add bridge type bridge || return 1
  ip -n "${ns_prefix}b" link set bridge up
  for i in $(seq 0 $((ns_count - 1))); do
    ns=$ns_prefix$i
    ip netns add "$ns" || return 1
    ip -n "$ns" link add eth0 type veth peer name "port$i" netns "${ns_prefix}b" || return 1
    ip -n "$ns" addr add 10.79.0.$((i + 1))/24 dev eth0
    ip -n "$ns" link set lo up
    ip -n "$ns" link set eth0 up
    ip -n "${ns_prefix}b" link set "port$i" master bridge
    ip -n "${ns_prefix}b" link set "port$i" up
  done
}
namespaces_remove() {
  local i
  for i in $(seq 0 $((ns_count - 1))) b; do
    ip netns del "$ns_prefix$i" 2>/dev/null
  done
}
# mpirun's way to another machine: the agent is called with its address.
namespaces_agent() { # file
  cat >"$1" <<END
#!/bin/bash
i=\$((\${1##*.} - 1))
shift
exec ip netns exec $ns_prefix\$i unshare --uts sh -c "hostname $ns_prefix\$i; \$*"
END
  chmod +x "$1"
}
# namespaces_run BUNDLE RANKS ARGUMENTS: the ranks of a bundle, each in its own.
namespaces_run() {
  local bundle=$1 n=$2 i words=()
  shift 2
  for i in $(seq 0 $((n - 1))); do
    [ "$i" = 0 ] || words+=(:)
    words+=(-n 1 --host "10.79.0.$((i + 1))" "$bundle/rank-000$i" "$@")
  done
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  namespaces_agent agent
  # shellcheck disable=SC2016
  exec ip netns exec "${ns_prefix}0" unshare --uts sh -c 'hostname $0; exec "$@"' "${ns_prefix}0" \
    mpirun --oversubscribe --bind-to none \
    --mca plm_rsh_agent "$PWD/agent" --mca plm_rsh_no_tree_spawn 1 \
    --mca btl tcp,self --mca btl_tcp_if_include 10.79.0.0/24 \
    --mca oob_tcp_if_include 10.79.0.0/24 --mca mpi_yield_when_idle 1 "${words[@]}"
}
namespaces_cut() { # a, b: neither reaches the other
  ip -n "$ns_prefix$1" route add blackhole "10.79.0.$(($2 + 1))/32"
  ip -n "$ns_prefix$2" route add blackhole "10.79.0.$(($1 + 1))/32"
}
namespaces_isolate() { # a
  ip -n "$ns_prefix$1" link set eth0 down
}
namespaces_heal() { # a, b
  ip -n "$ns_prefix$1" route del blackhole "10.79.0.$(($2 + 1))/32"
  ip -n "$ns_prefix$2" route del blackhole "10.79.0.$(($1 + 1))/32"
}

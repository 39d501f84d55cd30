# Sourced by the scripts here: Open MPI in a container or on a small machine. Root is only let in when it is
# root who asks, and more ranks than cores share the cores politely: Open MPI 4 reads the first of these
# names, 5 the second.
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# All ranks are on this machine: Open MPI 5 need not complain of networks that it cannot use.
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_tcp_if_include=lo

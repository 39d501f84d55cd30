# Sourced by the scripts here: Open MPI in a container or on a small machine. Root is only let in when it is root who
# asks, and more ranks than cores share the cores politely.
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

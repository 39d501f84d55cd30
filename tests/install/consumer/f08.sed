# What another user writes in examples/fortran/particles.f90, to have it with `use mpi_f08`.
s/^  use mpi$/  use mpi_f08/
s/use swale_mpi,/use swale_mpi_f08,/
s/integer, target :: communicator/type(MPI_Comm), target :: communicator/

/* A complete program around Swale in plain C, for any MPI: every rank owns some particles, walks them at
 * random and appends their positions under the particle's name, an epoch per step. Half of the particles
 * change their rank in every step. Then rank 0, alone, reads all trajectories back and compares them with
 * what they must be.
 *
 *   mpirun -n 4 particles OUT_DIR [PARTICLES [STEPS]]
 *
 * Exits with 0 if everything is found again, 1 if not, 2 if it cannot run. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swale/swale.h"
#include "swale/swale_mpi.h"

typedef struct Particle {
  double position[3];
  int64_t step;
} Particle;

static int failed(const char* what) {
  fprintf(stderr, "particles: %s: %s\n", what, swale_last_error());
  return 2;
}

/* A step of the walk in [-0.5, 0.5), the same wherever it is computed (splitmix64). */
static double walk(int64_t particle, int64_t step, int axis) {
  uint64_t x =
      (uint64_t)particle * 0x9e3779b97f4a7c15u + (uint64_t)step * 0xbf58476d1ce4e5b9u + (uint64_t)axis;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return (double)(x >> 11) / 9007199254740992.0 - 0.5;
}

static void move(Particle* state, int64_t particle, int64_t step) {
  for (int axis = 0; axis < 3; axis++) state->position[axis] += walk(particle, step, axis);
  state->step = step;
}

static int owner(int64_t particle, int64_t step, int ranks) {
  return (int)((particle + (particle % 2) * step) % ranks);
}

static size_t name_of(int64_t particle, char* name, size_t name_bytes) {
  return (size_t)snprintf(name, name_bytes, "particle.%lld", (long long)particle);
}

/* Appends this rank's particles of all steps; `states` has room for all particles. */
static int write_steps(swale_dir* dir, Particle* states, int64_t particles, int64_t steps, int rank,
                       int ranks) {
  for (int64_t step = 0; step < steps; step++) {
    for (int64_t particle = 0; particle < particles; particle++) {
      move(&states[particle], particle, step);
      if (owner(particle, step, ranks) != rank) continue;
      char name[32];
      const size_t name_bytes = name_of(particle, name, sizeof name);
      if (swale_dir_append(dir, name, name_bytes, &states[particle], sizeof(Particle)) != SWALE_OK)
        return failed("swale_dir_append");
    }
    if (swale_dir_epoch_end(dir, step, 0.1 * (double)step) != SWALE_OK) return failed("swale_dir_epoch_end");
  }
  return 0;
}

static int write_all(const char* path, int64_t particles, int64_t steps) {
  MPI_Comm communicator = MPI_COMM_WORLD;
  swale_comm comm = swale_comm_from_mpi(&communicator);
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  if (swale_job_open(&comm, NULL, &job) != SWALE_OK) return failed("swale_job_open");
  if (swale_dir_open(job, path, SWALE_CREATE | SWALE_EXCLUSIVE, NULL, &dir) != SWALE_OK)
    return failed("swale_dir_open");
  Particle* states = calloc((size_t)particles, sizeof *states);
  if (states == NULL) return failed("out of memory");
  const int status = write_steps(dir, states, particles, steps, swale_job_rank(job), swale_job_size(job));
  free(states);
  if (status != 0) return status;
  if (swale_dir_close(dir) != SWALE_OK) return failed("swale_dir_close");
  if (swale_job_close(job) != SWALE_OK) return failed("swale_job_close");
  return 0;
}

/* Compares the trajectory of one particle with its walk. */
static int trajectory_is_right(swale_reader* reader, int64_t particle, int64_t steps) {
  char name[32];
  const size_t name_bytes = name_of(particle, name, sizeof name);
  swale_values* values = NULL;
  if (swale_reader_get(reader, name, name_bytes, SWALE_ALL_EPOCHS, &values) != SWALE_OK) {
    fprintf(stderr, "particles: %s: %s\n", name, swale_last_error());
    return 0;
  }
  Particle expected = {{0, 0, 0}, 0};
  int right = swale_values_count(values) == (size_t)steps;
  for (int64_t step = 0; right && step < steps; step++) {
    int64_t epoch = -1;
    const void* value = NULL;
    size_t value_bytes = 0;
    move(&expected, particle, step);
    right = swale_values_at(values, (size_t)step, &epoch, &value, &value_bytes) == SWALE_OK &&
            epoch == step && value_bytes == sizeof expected && memcmp(value, &expected, sizeof expected) == 0;
  }
  swale_values_free(values);
  if (!right) fprintf(stderr, "particles: %s is not what was written\n", name);
  return right;
}

static int read_all(const char* path, int64_t particles, int64_t steps, int ranks) {
  swale_reader* reader = NULL;
  if (swale_reader_open(path, NULL, &reader) != SWALE_OK) return failed("swale_reader_open");
  uint64_t records = 0;
  if (swale_reader_count(reader, SWALE_ALL_EPOCHS, &records) != SWALE_OK) return failed("swale_reader_count");
  int64_t right = 0;
  for (int64_t particle = 0; particle < particles; particle++)
    right += trajectory_is_right(reader, particle, steps);
  swale_reader_close(reader);
  printf("%d ranks: %lld of %lld trajectories are right; %llu records, %lld expected\n", ranks,
         (long long)right, (long long)particles, (unsigned long long)records, (long long)(particles * steps));
  return right == particles && records == (uint64_t)(particles * steps) ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: particles OUT_DIR [PARTICLES [STEPS]]\n");
    return 2;
  }
  const int64_t particles = argc > 2 ? atoll(argv[2]) : 10000;
  const int64_t steps = argc > 3 ? atoll(argv[3]) : 5;
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int status = write_all(argv[1], particles, steps);
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status); /* the others may be waiting for this rank */
  if (rank == 0) status = read_all(argv[1], particles, steps, ranks);
  MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return status;
}

/* vpic.c DIR FRAMES PARTICLES: what the simulation of deltafs-imd-2017 (section 3) does, and nothing that it
 * does not: an MPI program that writes a file for each particle with opendir, fopen, fwrite, fclose and
 * closedir, and knows nothing of Swale. Particles move: at frame f, rank (p + f) % ranks has particle p.
 */
#include <dirent.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct particle { /* 40 bytes */
  uint64_t id;
  float position[3], momentum[3];
  uint32_t frame, rank;
} particle;

static void die(const char* what) {
  perror(what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static particle moved(int id, int frame, int rank) {
  particle made = {.id = (uint64_t)id, .frame = (uint32_t)frame, .rank = (uint32_t)rank};
  for (int i = 0; i < 3; ++i) {
    made.position[i] = (float)(id + i) + 0.25f * (float)frame;
    made.momentum[i] = (float)(id - i) / 8;
  }
  return made;
}

static void write_frame(const char* directory, int frame, int particles, int rank, int ranks) {
  DIR* const folder = opendir(directory);
  if (folder == NULL) die(directory);
  for (int id = 0; id < particles; ++id) {
    if ((id + frame) % ranks != rank) continue;
    char path[4096];
    snprintf(path, sizeof path, "%s/e.%08x", directory, (unsigned)id);
    const particle value = moved(id, frame, rank);
    FILE* const file = fopen(path, "a");
    if (file == NULL || fwrite(&value, sizeof value, 1, file) != 1 || fclose(file) != 0) die(path);
  }
  if (closedir(folder) != 0) die("closedir");
}

int main(int count, char** words) {
  int rank = 0, ranks = 0;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (count != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int frame = 0; frame < atoi(words[2]); ++frame) {
    double energy = rank, sum = 0; /* a step of the simulation */
    MPI_Allreduce(&energy, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    write_frame(words[1], frame, atoi(words[3]), rank, ranks);
  }
  MPI_Finalize();
  return 0;
}

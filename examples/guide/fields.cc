// fields DIR: two frames of a field of 8 MiB, and a note on each; then the field's last number is read.
#include <cstdint>
#include <cstdio>
#include <string>
#include <swale/swale.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  {
    swale::Job job;
    swale::Directory dir(job, argv[1], SWALE_CREATE);
    std::vector<double> field(1 << 20);
    for (int frame = 0; frame < 2; ++frame) {
      for (std::size_t i = 0; i < field.size(); ++i) field[i] = frame + 1e-6 * static_cast<double>(i);
      dir.append("density", {reinterpret_cast<const char*>(field.data()), field.size() * sizeof(double)});
      dir.append("note", "frame " + std::to_string(frame));
      dir.epoch_end(frame, frame);
    }
    dir.close();
    job.close();
  }
  const swale::Reader reader(argv[1]);
  swale_subfile* file;
  if (swale_subfile_open_read(reader.handle(), "density", &file) != SWALE_OK) return 1;
  std::vector<double> piece(1 << 13);
  std::size_t bytes = 0, total = 0;
  double last = 0;
  while (swale_subfile_read(file, piece.data(), piece.size() * sizeof(double), &bytes) == SWALE_OK &&
         bytes > 0) {
    total += bytes;
    last = piece[bytes / sizeof(double) - 1];
  }
  swale_subfile_close(file);
  std::printf("%zu bytes, the last number is %.6f\n", total, last);
} catch (const swale::Error& error) {
  std::fprintf(stderr, "fields: %s\n", error.what());
  return 1;
}

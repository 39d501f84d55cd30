// engines DIR: a tiered write buffer and a metadata store in DIR. engines --servers: files behind I/O
// servers. In C++.
#include <swale/swale_arrow.h>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <swale/swale_fs.hpp>
#include <swale/swale_iond.hpp>
#include <swale/swale_meta.hpp>
#include <swale/swale_tier.hpp>

namespace {

void expect(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

void use_columns() {
  swale_cancel* cancel = nullptr;
  expect(swale_cancel_make(&cancel) == SWALE_OK, "what cancels a stream of columns");
  swale_cancel_free(cancel);
}

void use_buffer(const std::string& path) {
  swale::Tier tier(path + "/slow", path + "/ssd", SWALE_CREATE, "tier.size=16M");
  swale::TierFile file = tier.open_file("f", SWALE_CREATE);
  file.write(1000, "buffered");
  file.sync();
  expect(file.read(1000, 100) == "buffered" && file.stat().size == 1008, "what was written to the buffer");
  file.close();
  tier.drain();
  expect(swale::sum_of(tier.stats(), "write.bytes") == 8 && tier.losses().empty(), "the buffer's counters");
  tier.close();
}

// tests/mount/library_test.py has files of a tree.
void use_no_tree(const std::string& path) {
  std::string said;
  try {
    const swale::FsFile file(path + "/on-no-tree", SWALE_CREATE);
  } catch (const swale::Error& error) {
    said = error.what();
  }
  expect(said.find("swale run --backing") != std::string::npos, "what to do with a file on no tree");
}

void use_store(const std::string& path) {
  swale::Job job;
  swale::MetaStore store(job, path + "/meta", SWALE_CREATE);
  swale::MetaFile file = store.open_file("f", SWALE_CREATE);
  file.put({{0, 100, 700, 3, 0}});
  const auto found = file.get({{50, 10}});
  expect(found.size() == 1 && found[0].size() == 1 && found[0][0].address == 750 && found[0][0].log == 3,
         "where the bytes are");
  file.close();
  expect(store.stat("f").size == 100, "the file's size");
  store.close();
  job.close();
}

void use_servers() {
  swale::Job job;
  swale::IoServers servers(job);
  swale::IoFile file = servers.open_file("f", SWALE_CREATE | SWALE_EXCLUSIVE, 0640);
  const std::string data(200'000, 's');
  file.write(5, data);
  expect(file.read(5, 300'000) == data && file.stat().size == 200'005, "what was written to the servers");
  file.close();
  servers.mkdir("d");
  servers.rename("f", "d/g");
  servers.set_modified("d/g", 7'000'000'001);
  servers.set_mode("d/g", 0600);
  expect(servers.list("d").size() == 1 && servers.list("d")[0].name == "g", "the list of a directory");
  expect(servers.list()[0].kind == SWALE_IOND_DIRECTORY_ENTRY, "the list of the top directory");
  expect((servers.stat("d").mode & SWALE_IOND_DIRECTORY) != 0, "a directory by its name");
  expect(servers.stat("d/g").modified_ns == 7'000'000'001 && servers.stat("d/g").mode == 0600, "attributes");
  servers.rename("d/g", "g");
  servers.rmdir("d");
  expect(servers.stat("g").size == 200'005, "a file by its name");
  servers.drain();
  expect(swale::sum_of(servers.stats(), "write.bytes") == 200'000, "the servers' counters");
  servers.close();
  job.close();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  if (std::string(argv[1]) == "--servers") {
    use_servers();
  } else {
    use_columns();
    use_buffer(argv[1]);
    use_no_tree(argv[1]);
    use_store(argv[1]);
  }
  std::printf("all engines from C++\n");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "engines: %s\n", error.what());
  return 1;
}

// A leveldb::Env whose tables are read by pread. LevelDB's own maps them, and what a process has mapped
// cannot be dropped from the page cache: its cold reads would be warm ones.
//
// Threads: as leveldb::Env says.
#pragma once

#include <leveldb/env.h>

#include <memory>

namespace swale::bench {

std::unique_ptr<leveldb::Env> make_pread_env();

}  // namespace swale::bench

// verify_clusters: reads every byte of the clusters that live, and compares what they hold of each epoch with
// the epoch log.
// Threads: any. Memory: as verify_directory, for one cluster at a time.
#pragma once

#include <cstddef>

#include "imd/check/verify.h"
#include "imd/format/manifest.h"
#include "imd/read/reader_io.h"

namespace swale::imd {

// Adds to the report: bytes, clusters, and problems up to `problems_max`. `manifest` is the directory's.
void verify_clusters(const ReaderFiles& files, const Manifest& manifest, size_t problems_max,
                     VerifyReport* report);

}  // namespace swale::imd

// Checker: checks that a directory has exactly the content of the model. Reads with the product's Reader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/device.h"
#include "sim/workload.h"

namespace swale::sim {

// Epochs that some rank was told are committed must exist; later attempted ones may exist. Every epoch that
// exists must equal the model exactly: by scan, by index (a sample of `probes` keys and as many absent ones)
// and by verify. Returns a description of each problem.
std::vector<std::string> check_directory(io::Device& device, const std::string& directory, const Model& model,
                                         uint32_t epochs_promised, size_t probes);

}  // namespace swale::sim

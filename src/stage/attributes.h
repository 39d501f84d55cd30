// What a copy gets of its source beside the bytes: mode, times, attributes "user.", and, if root stages, the
// owner.
//
// Threads: free functions. Errors: name the destination and the attribute.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/status.h"
#include "stage/stage_options.h"

namespace swale::stage {

// Of the open source, which was as `attributes` says, to the open copy. `path`: of the copy, for messages.
Status copy_attributes(int source, const struct stat& attributes, int copy, const std::string& path,
                       Attributes which);

}  // namespace swale::stage

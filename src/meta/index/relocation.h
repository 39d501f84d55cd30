// Rules of relocation: bytes of a log that now stand elsewhere. A rule applies to what was put before it, at
// lookup. A checkpoint that merges everything rewrites places and retires the rules.
//
// Threads: pure functions. Errors: std::bad_alloc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "meta/index/entries.h"
#include "meta/index/log.h"

namespace swale::meta {

// Where bytes at `place` stand now, if they were put with `sequence`. *whole: how many of the `length` bytes
// moved (or stayed) together. Rules ascend by sequence.
Place relocated(std::span<const SequencedRelocation> rules, Place place, uint64_t length, Sequence sequence,
                uint64_t* whole);

// The same for rows: those of which a part has moved become several. Their order and what they cover stay.
void relocate_rows(std::span<const SequencedRelocation> rules, std::vector<Entry>* rows);

// How many of the first rules move the run whole or not at all. *place: where its first block stands after
// those.
size_t rules_for_whole(std::span<const SequencedRelocation> rules, const Run& run, Sequence sequence,
                       Place* place);

}  // namespace swale::meta

// What node servers say to each other of drains and names (PeerMethod), beside the messages of fs/share.
//
//   DrainStep := file u64 u64, drain u64, backing (inode u64, size u64, modified_ns u64), path sized, fetch
//   DrainWish := file u64 u64, backing, places varint, (directory u64 u64, name sized, id u64 u64)*
//   NameNews  := file u64 u64, type u8, gone u8, directory u64 u64, name sized
//
// Threads: plain values. Errors: decoding foreign bytes gives kCorruption.
#pragma once

#include <string>
#include <vector>

#include "fs/share/share_messages.h"
#include "meta/names/tree.h"

namespace swale::fs {

struct DrainStep {
  meta::FileId file = {};
  uint64_t drain = 0;            // kFix: its number
  SeenBacking backing = {};      // kBrought: what is there now; kWriteOut: whose inode is to be written
  std::string path = {};         // kWriteOut, beneath the backing directory
  std::vector<Span> spans = {};  // kWriteOut
};

// Where an entry is, and what it leads to.
struct KnownPlace {
  meta::FileId directory = {};
  std::string name = {};
  meta::FileId id = {};
};

struct DrainWish {
  meta::FileId file = {};
  SeenBacking backing = {};             // as the node sees it that asks
  std::vector<KnownPlace> places = {};  // from the root of the tree to the file
};

struct NameNews {
  meta::FileId file = {};
  meta::NodeType type = meta::NodeType::kFile;
  bool gone = false;
  meta::FileId directory = {};  // if it is not gone
  std::string name = {};
};

std::string encode(const DrainStep& step);
Result<DrainStep> decode_drain_step(Bytes bytes);
std::string encode(const DrainWish& wish);
Result<DrainWish> decode_drain_wish(Bytes bytes);
std::string encode(const NameNews& news);
Result<NameNews> decode_name_news(Bytes bytes);

}  // namespace swale::fs

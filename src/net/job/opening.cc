#include "net/job/opening.h"

#include "base/coding.h"
#include "base/contain.h"
#include "net/job/job.h"

namespace swale::net {

Status begin_collective(Job& job, CallKind kind, std::string_view path, const Status& mine) {
  bool threw = true;
  const Status status = contain([&]() -> Status {
    Status begun = job.begin_call(kind, path);
    if (begun.ok()) begun = agree(job, mine);
    threw = false;
    return begun;
  });
  if (threw) job.give_up(status);
  return status;
}

namespace {

// `first_word`: of those that the ranks give.
template <class FirstWord>
Status agree_by(const FirstWord& first_word, bool is_first, std::span<const AgreedOption> options) {
  std::string text;
  for (const AgreedOption& option : options) append_sized(&text, option.value);
  SWALE_ASSIGN_OR_RETURN(const Word of_first, first_word(is_first ? text : ""));
  SWALE_ASSIGN_OR_RETURN(const Word other, first_word(of_first.text == text ? "" : text));
  if (other.rank < 0) return {};
  Decoder first(of_first.text);
  Decoder second(other.text);
  for (const AgreedOption& option : options) {
    const Bytes a = first.sized();
    const Bytes b = second.sized();
    if (a == b) continue;
    return invalid_argument(
        "rank 0 opened with {}=\"{}\", rank {} with {}=\"{}\": all ranks must give the same", option.name, a,
        other.rank, option.name, b);
  }
  return invalid_argument("rank {} opened with other options than rank 0", other.rank);
}

}  // namespace

Status agree_on_options(const Ranks& ranks, std::span<const AgreedOption> options) {
  if (ranks.size == 1) return {};
  return agree_by([&](const std::string& mine) { return first_word(ranks, mine); }, ranks.rank == 0, options);
}

Status agree_on_options(Bootstrap& bootstrap, std::span<const AgreedOption> options) {
  if (bootstrap.size() == 1) return {};
  return agree_by([&](const std::string& mine) { return first_word(bootstrap, mine); }, bootstrap.rank() == 0,
                  options);
}

}  // namespace swale::net

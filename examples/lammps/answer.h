// The demo's question and answer, common to all methods: which atoms (fastest.json), and their trajectories,
// sorted by atom and step, as text with every bit of the floats (%.9g). Equal answers are equal files.
#ifndef EXAMPLES_LAMMPS_ANSWER_H_
#define EXAMPLES_LAMMPS_ANSWER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record.h"

namespace impact {

using Answer = std::vector<DumpRecord>;

void sort_answer(Answer& answer);
void write_answer(const std::string& path, const Answer& answer);

nlohmann::json read_json(const std::string& path);
void write_json(const std::string& path, const nlohmann::json& json);

}  // namespace impact

#endif  // EXAMPLES_LAMMPS_ANSWER_H_

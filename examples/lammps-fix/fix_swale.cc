// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
#include "fix_swale.h"

#include <lammps/atom.h>
#include <lammps/compute.h>
#include <lammps/domain.h>
#include <lammps/error.h>
#include <lammps/input.h>
#include <lammps/lammps.h>
#include <lammps/modify.h>
#include <lammps/update.h>
#include <lammps/utils.h>
#include <lammps/variable.h>
#include <mpi.h>
#include <swale/swale_arrow.h>
#include <swale/swale_mpi.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <type_traits>

namespace LAMMPS_NS {

// What an atom has by itself, under the names of LAMMPS's `dump custom`.
struct SwaleAttribute {
  const char* name;
  const char* type;
  bool (*exists)(const Atom&);
  void (*copy)(const Atom&, Domain&, int i, char* to);
};

namespace {

template <typename T>
void put(char* to, T number) {
  std::memcpy(to, &number, sizeof number);
}

template <int kAxis>
void put_unwrapped(const Atom& atom, Domain& domain, int i, char* to) {
  double place[3];
  domain.unmap(atom.x[i], atom.image[i], place);
  put(to, place[kAxis]);
}

// How often the atom has crossed the periodic border of an axis.
template <int kAxis>
int32_t crossings(imageint image) {
  constexpr int kShift[] = {0, IMGBITS, IMG2BITS};
  return static_cast<int32_t>((image >> kShift[kAxis] & IMGMASK) - IMGMAX);
}

constexpr auto kAlways = [](const Atom&) { return true; };
constexpr SwaleAttribute kAttributes[] = {
    {"type", "i4", kAlways, [](const Atom& a, Domain&, int i, char* to) { put<int32_t>(to, a.type[i]); }},
    {"mol", "i8", [](const Atom& a) { return a.molecule_flag != 0; },
     [](const Atom& a, Domain&, int i, char* to) { put<int64_t>(to, a.molecule[i]); }},
    {"x", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.x[i][0]); }},
    {"y", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.x[i][1]); }},
    {"z", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.x[i][2]); }},
    {"xu", "f8", kAlways, put_unwrapped<0>},
    {"yu", "f8", kAlways, put_unwrapped<1>},
    {"zu", "f8", kAlways, put_unwrapped<2>},
    {"ix", "i4", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, crossings<0>(a.image[i])); }},
    {"iy", "i4", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, crossings<1>(a.image[i])); }},
    {"iz", "i4", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, crossings<2>(a.image[i])); }},
    {"vx", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.v[i][0]); }},
    {"vy", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.v[i][1]); }},
    {"vz", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.v[i][2]); }},
    {"fx", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.f[i][0]); }},
    {"fy", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.f[i][1]); }},
    {"fz", "f8", kAlways, [](const Atom& a, Domain&, int i, char* to) { put(to, a.f[i][2]); }},
    {"q", "f8", [](const Atom& a) { return a.q_flag != 0; },
     [](const Atom& a, Domain&, int i, char* to) { put(to, a.q[i]); }},
    {"mass", "f8", kAlways,
     [](const Atom& a, Domain&, int i, char* to) {
       put(to, a.rmass != nullptr ? a.rmass[i] : a.mass[a.type[i]]);
     }},
    {"radius", "f8", [](const Atom& a) { return a.radius_flag != 0; },
     [](const Atom& a, Domain&, int i, char* to) { put(to, a.radius[i]); }},
};

const SwaleAttribute* attribute_of(const std::string& name) {
  const auto* const found = std::find_if(std::begin(kAttributes), std::end(kAttributes),
                                         [&](const SwaleAttribute& each) { return name == each.name; });
  return found == std::end(kAttributes) ? nullptr : found;
}

std::string three(const double* numbers) {
  char text[128];
  std::snprintf(text, sizeof text, "[%.17g,%.17g,%.17g]", numbers[0], numbers[1], numbers[2]);
  return text;
}

}  // namespace

// A field of the records: an attribute of atoms, or the numbers of a compute (c_ID), a fix (f_ID) or an
// atom-style variable (v_NAME).
struct FixSwale::Field {
  std::string name;
  const SwaleAttribute* attribute;
  int columns = 0;  // 0: a number for each atom; otherwise an array of so many
  Compute* compute = nullptr;
  Fix* fix = nullptr;
  int variable = -1;

  size_t numbers() const { return static_cast<size_t>(columns == 0 ? 1 : columns); }
  size_t bytes() const {
    return attribute != nullptr && attribute->type[1] == '4' ? 4 : sizeof(double) * numbers();
  }
};

// What stands at the place of the directory before it is opened.
struct FixSwale::Before {
  int64_t epochs = 0;
  int64_t later = 0;              // epochs after this step
  int64_t last_kept = INT64_MIN;  // the step of the last epoch that is not later than now
};

FixSwale::FixSwale(LAMMPS* lammps, int argc, char** argv) : Fix(lammps, argc, argv) {
  if (argc < 5) stop("expected fix ID GROUP swale N DIR [FIELD ...] [extrema FIELD ...]");
  nevery = utils::inumeric(FLERR, argv[3], false, lmp);
  if (nevery < 1) stop(std::string("N is ") + argv[3] + ": expected 1 or more steps");
  path_ = argv[4];
  dynamic_group_allow = 1;
  restart_global = 1;
  std::vector<std::string> names;
  bool of_extrema = false;
  for (int i = 5; i < argc; ++i) {
    if (std::strcmp(argv[i], "extrema") == 0) {
      of_extrema = true;
    } else {
      (of_extrema ? extrema_ : names).emplace_back(argv[i]);
    }
  }
  if (names.empty()) names = {"type", "x", "y", "z", "vx", "vy", "vz"};
  for (const std::string& name : names) {
    const SwaleAttribute* const attribute = attribute_of(name);
    const bool named = name.size() > 2 && name[1] == '_' && std::strchr("cfv", name[0]) != nullptr;
    if (attribute == nullptr && !named) {
      std::string known;
      for (const SwaleAttribute& each : kAttributes) known += std::string(each.name) + " ";
      stop("no field " + name + "; there are " + known +
           "c_ID, f_ID and v_NAME (each atom's key is its ID, which needs no field)");
    }
    if (attribute != nullptr && !attribute->exists(*atom)) stop("atoms of this atom_style have no " + name);
    fields_.push_back({name, attribute});
  }
  for (const std::string& name : extrema_) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      stop("extrema " + name + ": no such field in this command");
  }
  // Computes are asked at this step, and must know it before the forces are computed.
  const bigint now = update->ntimestep;
  modify->addstep_compute_all((now + nevery - 1) / nevery * nevery);
}

FixSwale::~FixSwale() {
  // Every epoch is committed already; a failure could only be told.
  if (dir_ != nullptr && swale_dir_close(dir_) != SWALE_OK)
    error->warning(FLERR, std::string("fix swale: swale_dir_close: ") + swale_last_error());
  if (job_ != nullptr && swale_job_close(job_) != SWALE_OK)
    error->warning(FLERR, std::string("fix swale: swale_job_close: ") + swale_last_error());
}

int FixSwale::setmask() { return FixConst::END_OF_STEP; }

void FixSwale::find(Field& field) const {
  const std::string name = field.name.substr(2);
  if (field.name[0] == 'c') {
    const int at = modify->find_compute(name);
    if (at < 0) stop("no compute " + name);
    field.compute = modify->compute[at];
    if (field.compute->peratom_flag == 0) stop("compute " + name + " has no numbers for each atom");
    field.columns = field.compute->size_peratom_cols;
  } else if (field.name[0] == 'f') {
    const int at = modify->find_fix(name);
    if (at < 0) stop("no fix " + name);
    field.fix = modify->fix[at];
    if (field.fix->peratom_flag == 0) stop("fix " + name + " has no numbers for each atom");
    if (nevery % field.fix->peratom_freq != 0)
      stop("fix " + name + " has numbers every " + std::to_string(field.fix->peratom_freq) +
           " steps: make N a multiple of that");
    field.columns = field.fix->size_peratom_cols;
  } else {
    field.variable = input->variable->find(name.c_str());
    if (field.variable < 0 || input->variable->atomstyle(field.variable) == 0)
      stop("no atom-style variable " + name);
  }
}

std::string FixSwale::schema() const {
  std::string text;
  for (const Field& field : fields_) {
    text += (text.empty() ? "" : ";") + field.name + ":" +
            (field.attribute != nullptr ? field.attribute->type : "f8");
    if (field.columns > 1) text += "x" + std::to_string(field.columns);
  }
  return text;
}

void FixSwale::init() {
  if (atom->tag_enable == 0) stop("atoms have no IDs, which are the keys");
  const std::string before = record_bytes_ == 0 ? "" : schema();
  record_bytes_ = 0;
  for (Field& field : fields_) {
    if (field.attribute == nullptr) find(field);
    record_bytes_ += field.bytes();
  }
  if (!before.empty() && schema() != before)
    stop("the fields were " + before + " and are " + schema() + ": use another directory");
  if (dir_ == nullptr) open();
}

FixSwale::Before FixSwale::look_before() const {
  struct {
    Before found;
    int status = SWALE_OK;
    char text[512] = "";
  } told;
  static_assert(std::is_trivially_copyable_v<decltype(told)>);
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  if (rank == 0) {
    swale_reader* reader = nullptr;
    told.status = swale_reader_open(path_.c_str(), nullptr, &reader);
    if (told.status == SWALE_OK) {
      told.found.epochs = swale_reader_epoch_count(reader);
      for (int64_t i = 0; i < told.found.epochs; ++i) {
        swale_epoch_info info = {};
        info.struct_bytes = sizeof info;
        if (swale_reader_epoch_info(reader, i, &info) != SWALE_OK) continue;
        told.found.later += info.step > update->ntimestep ? 1 : 0;
        if (info.step <= update->ntimestep) told.found.last_kept = std::max(told.found.last_kept, info.step);
      }
    } else {
      std::snprintf(told.text, sizeof told.text, "%s", swale_last_error());
    }
    swale_reader_close(reader);
  }
  MPI_Bcast(&told, sizeof told, MPI_BYTE, 0, world);
  if (told.status != SWALE_OK && told.status != SWALE_NOT_FOUND) stop(told.text);
  return told.found;
}

void FixSwale::open() {
  const Before before = look_before();
  if (!continues_ && (before.later > 0 || before.last_kept == update->ntimestep))
    stop(path_ + " has epochs of step " + std::to_string(update->ntimestep) +
         " or later, and this run does not come from a restart file that was written while a fix swale with "
         "this ID was there: remove it, or name another directory");
  written_ = before.last_kept;
  std::string options = "imd.key=u64,imd.schema=" + schema();
  for (const std::string& name : extrema_)
    options += (&name == extrema_.data() ? ",imd.extrema=" : ";") + name;
  // What an earlier run wrote after the step that this one begins at, it computes again.
  if (continues_ && before.epochs > 0) options += ",imd.resume_after=" + std::to_string(update->ntimestep);
  if (job_ == nullptr) {
    swale_comm comm = swale_comm_from_mpi(&world);
    check_all(swale_job_open(&comm, nullptr, &job_), "swale_job_open");
  }
  check_all(swale_dir_open(job_, path_.c_str(), SWALE_CREATE, options.c_str(), &dir_), "swale_dir_open");
}

void FixSwale::write_restart(FILE* file) {
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  if (rank != 0) return;
  const double step = static_cast<double>(written_);
  const int bytes = sizeof step;
  std::fwrite(&bytes, sizeof bytes, 1, file);
  std::fwrite(&step, sizeof step, 1, file);
}

void FixSwale::restart(char* /*state*/) { continues_ = true; }

void FixSwale::setup(int /*vflag*/) {
  const bigint now = update->ntimestep;
  if (now % nevery == 0 && now != written_) {
    write();
  } else {
    modify->addstep_compute_all((now / nevery + 1) * nevery);
  }
}

void FixSwale::end_of_step() { write(); }

// Names of the position and the velocity, for exports and plots; the units; which borders are periodic.
void FixSwale::describe() {
  const auto has = [&](const char* name) {
    return std::any_of(fields_.begin(), fields_.end(), [&](const Field& each) { return each.name == name; });
  };
  std::string text = std::string("{\"units\":\"") + update->unit_style + "\",\"periodic\":[";
  for (int axis = 0; axis < 3; ++axis)
    text += std::string(axis == 0 ? "" : ",") + (domain->periodicity[axis] != 0 ? "true" : "false");
  text += "]";
  const bool inside = has("x") && has("y") && has("z");
  if (inside || (has("xu") && has("yu") && has("zu")))
    text += std::string(",\"position\":") + (inside ? R"(["x","y","z"])" : R"(["xu","yu","zu"])");
  if (has("vx") && has("vy") && has("vz")) text += R"(,"velocity":["vx","vy","vz"])";
  if (has("type")) text += R"(,"species":"type")";
  check_all(swale_dir_set_attributes(dir_, SWALE_DESCRIBED_DIRECTORY, (text + "}").c_str()),
            "swale_dir_set_attributes");
  const double edges[3][3] = {
      {domain->xprd, 0, 0}, {domain->xy, domain->yprd, 0}, {domain->xz, domain->yz, domain->zprd}};
  text = "{\"origin\":" + three(domain->boxlo) + ",\"box\":";
  text += domain->triclinic == 0
              ? three(domain->prd)
              : "[" + three(edges[0]) + "," + three(edges[1]) + "," + three(edges[2]) + "]";
  check_all(swale_dir_set_attributes(dir_, SWALE_DESCRIBED_EPOCH, (text + "}").c_str()),
            "swale_dir_set_attributes");
}

void FixSwale::write() {
  const bigint step = update->ntimestep;
  std::vector<int> atoms;
  keys_.clear();
  for (int i = 0; i < atom->nlocal; ++i) {
    if ((atom->mask[i] & groupbit) == 0) continue;
    atoms.push_back(i);
    keys_.push_back(static_cast<uint64_t>(atom->tag[i]));
  }
  records_.resize(atoms.size() * record_bytes_);
  modify->clearstep_compute();
  size_t offset = 0;
  for (const Field& field : fields_) {
    fill(field, atoms, records_.data() + offset);
    offset += field.bytes();
  }
  modify->addstep_compute(step + nevery);
  const auto stride = static_cast<ptrdiff_t>(record_bytes_);
  check_one(swale_dir_append_many(dir_, keys_.data(), sizeof(uint64_t), sizeof(uint64_t), records_.data(),
                                  record_bytes_, stride, keys_.size(), nullptr),
            "swale_dir_append_many");
  describe();
  const double time = update->atime + static_cast<double>(step - update->atimestep) * update->dt;
  check_all(swale_dir_epoch_end(dir_, step, time), "swale_dir_epoch_end");
  written_ = step;
}

void FixSwale::fill(const Field& field, const std::vector<int>& atoms, char* first) {
  if (field.attribute == nullptr) {
    fill_numbers(field, atoms, first);
    return;
  }
  for (const int i : atoms) {
    field.attribute->copy(*atom, *domain, i, first);
    first += record_bytes_;
  }
}

void FixSwale::fill_numbers(const Field& field, const std::vector<int>& atoms, char* first) {
  const double* column = nullptr;
  double* const* rows = nullptr;
  if (field.compute != nullptr) {
    if ((field.compute->invoked_flag & Compute::INVOKED_PERATOM) == 0) {
      field.compute->compute_peratom();
      field.compute->invoked_flag |= Compute::INVOKED_PERATOM;
    }
    column = field.compute->vector_atom;
    rows = field.compute->array_atom;
  } else if (field.fix != nullptr) {
    column = field.fix->vector_atom;
    rows = field.fix->array_atom;
  } else {
    numbers_.resize(static_cast<size_t>(atom->nlocal));
    input->variable->compute_atom(field.variable, igroup, numbers_.data(), 1, 0);
    column = numbers_.data();
  }
  for (const int i : atoms) {
    const double* const from = field.columns == 0 ? column + i : rows[i];
    std::memcpy(first, from, sizeof(double) * field.numbers());
    first += record_bytes_;
  }
}

void FixSwale::stop(const std::string& text) const { error->all(FLERR, "fix swale: " + text); }

void FixSwale::check_all(int status, const char* call) const {
  if (status != SWALE_OK) stop(std::string(call) + ": " + swale_last_error());
}

void FixSwale::check_one(int status, const char* call) const {
  if (status != SWALE_OK) error->one(FLERR, std::string("fix swale: ") + call + ": " + swale_last_error());
}

void FixSwale::add_to(LAMMPS* lammps) {
  (*lammps->modify->fix_map)["swale"] = [](LAMMPS* owner, int argc, char** argv) -> Fix* {
    return new FixSwale(owner, argc, argv);
  };
}

}  // namespace LAMMPS_NS

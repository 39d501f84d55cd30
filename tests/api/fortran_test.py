"""fortran_test.py HEADER... MODULE: the Fortran module has every function, constant and structure of the C
headers.

Arguments are compared by name and number, structures by their members' names and types; what they do when
called is tested by programs (tests/install). With the header or the module altered, the comparison notices.
"""
import re
import sys

HEADERS, MODULE = sys.argv[1:-1], sys.argv[-1]
C_TYPES = {"int": "integer(c_int)", "int64_t": "integer(c_int64_t)", "uint64_t": "integer(c_int64_t)",
           "size_t": "integer(c_size_t)", "uint32_t": "integer(c_int32_t)", "double": "real(c_double)",
           "const void*": "type(c_ptr)", "const char*": "type(c_ptr)",
           "void*": "type(c_ptr)", "function": "type(c_funptr)"}


def header_contents(text):
    """(functions: name -> number of arguments, constants: name -> value, structures: name -> [(member,
    type)]).
    """
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    constants = {name: int(value) for name, value in re.findall(r"^#define (SWALE_\w+) \(?(-?\d+)\)?\s*$",
                                                                text, re.M)
                 if not name.startswith("SWALE_VERSION")}
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    for body in re.findall(r"enum \w+ \{(.*?)\}", text, re.S):
        constants.update({name: int(value) for name, value in re.findall(r"(SWALE_\w+) = (\d+)", body)})
    structures = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\}", text, re.S):
        structures[name] = [
            (pointer, "function") if pointer else (member, kind.strip())
            for _, pointer, kind, member in re.findall(r"(\w+ \(\*(\w+)\)\([^;]*\)|([\w ]+\*?) "
                                                       r"(\w+)(?:\[\w+\])?);", body)]
    text = re.sub(r"\{.*?\}", "", text,
                  flags=re.S) if 'extern "C" {' not in text else text.replace('extern "C" {', "")
    functions = {}
    for name, arguments in re.findall(r"\b(swale_\w+)\s*\(([^()]*)\)\s*;", text):
        functions[name] = 0 if arguments.strip() in ("", "void") else arguments.count(",") + 1
    return functions, constants, structures


def module_contents(text):
    text = re.sub(r"&\s*\n\s*", "", re.sub(r"!.*$", "", text, flags=re.M))
    functions = {}
    for arguments, name in re.findall(r"(?:function|subroutine) \w+\(([^)]*)\)\s*bind\(C, "
                                      r"name=\"(swale_\w+)\"\)", text):
        functions[name] = len([argument for argument in arguments.split(",") if argument.strip()])
    constants = {name: int(value) for name, value in
                 re.findall(r"parameter, public :: (SWALE_\w+) = (-?\d+)(?:_c_\w+)?$", text, re.M)}
    structures = {}
    for name, body in re.findall(r"type, bind\(C\), public :: (\w+)\n(.*?)end type", text, re.S):
        structures[name] = [(member, kind) for kind,
                            member in re.findall(r"^\s*(\S+) :: (\w+)(?:\(\w+\))? =", body, re.M)]
    public = set(re.findall(r"\bswale_\w+", " ".join(re.findall(r"public :: ([^\n]*)", text))))
    return functions, constants, structures, public


def sizes(text):
    """Structure -> (what struct_bytes is initialised to, what its members take)."""
    found = {}
    for name, body in re.findall(r"type, bind\(C\), public :: (\w+)\n(.*?)end type", text, re.S):
        said = re.search(r":: struct_bytes = (\d+)", body)
        members = re.findall(r"^\s*(\S+) :: \w+ =", body, re.M)
        if said:  # no structure has a gap: each has an even number of 4-byte members, side by side
            found[name] = (int(said.group(1)), sum(4 if kind in ("integer(c_int)", "integer(c_int32_t)")
                                                   else 8 for kind in members))
    return found


def differences(header, module):
    functions, constants, structures = header_contents(header)
    bound, values, types, public = module_contents(module)
    handles = {name for name, members in types.items() if members == [("handle", "type(c_ptr)")]}
    found = [f"{name}: in {side} alone" for one, two, side in
             ((functions, bound, "the headers"), (bound, functions, "swale.f90"),
              (constants, values, "the headers"),
              (values, constants, "swale.f90"), (structures, types, "the headers"))
             for name in sorted(set(one) - set(two))]
    found += [f"{name}: in swale.f90 alone" for name in sorted(set(types) - set(structures) - handles)]
    found += [f"{name}: not public in swale.f90" for name in sorted(set(functions) - public)]
    found += [f"{name}: {count} arguments in swale.h, {bound[name]} in swale.f90"
              for name, count in functions.items() if name in bound and bound[name] != count]
    found += [f"{name} = {value} in swale.h, {values[name]} in swale.f90"
              for name, value in constants.items() if name in values and values[name] != value]
    found += [f"{name}: struct_bytes = {said} in swale.f90, and the members take {taken} bytes"
              for name, (said, taken) in sizes(module).items() if said != taken]
    found += [f"{name}: has no struct_bytes in swale.f90" for name, members in structures.items()
              if members[0][0] == "struct_bytes" and name not in sizes(module)]
    for name, members in structures.items():
        wanted = [(member, C_TYPES.get(kind, f"type({kind})")) for member, kind in members]
        if name in types and types[name] != wanted:
            found.append(f"{name}: {wanted} in swale.h, {types[name]} in swale.f90")
    return found, (len(functions), len(constants), len(structures))


def main():
    header = ""
    for name in HEADERS:
        with open(name, encoding="utf-8") as file:
            header += file.read()
    with open(MODULE, encoding="utf-8") as file:
        module = file.read()
    found, counts = differences(header, module)
    assert counts[0] > 85 and counts[1] > 25 and counts[2] > 9, f"the header was not understood: {counts}"
    if found:
        sys.exit("include/swale/swale.f90 is not what the headers say; change it too:\n  "
                 + "\n  ".join(found))
    canaries = [
        (header.replace("int swale_dir_close(swale_dir* dir);", ""), module, "swale_dir_close"),
        (header, module.replace('name="swale_top_free"', 'name="swale_top_gone"'), "swale_top_free"),
        (header.replace("SWALE_BUSY = 10", "SWALE_BUSY = 20"), module, "SWALE_BUSY"),
        (header, module.replace("integer(c_int64_t) :: nans = 0", "integer(c_int) :: nans = 0"),
         "swale_top_stats"),
        (header.replace("int swale_dir_pause(swale_dir* dir)", "int swale_dir_pause(swale_dir* dir, int "
                        "how)"), module,
         "swale_dir_pause"),
        (header, module.replace("swale_top_free, swale_subfile_close", "swale_top_free"),
         "swale_subfile_close"),
        (header, module.replace('name="swale_tier_sync"', 'name="swale_tier_sink"'), "swale_tier_sync"),
        (header.replace("swale_meta_seal(swale_meta_file* file)", "swale_meta_seal(swale_meta_file* file, "
                        "int how)"), module, "swale_meta_seal"),
        (header, module.replace("struct_bytes = 56", "struct_bytes = 48"), "swale_top_stats"),
    ]
    for altered_header, altered_module, name in canaries:
        assert (altered_header, altered_module) != (header, module), f"the canary for {name} alters nothing"
        noticed = differences(altered_header, altered_module)[0]
        assert any(name in line for line in noticed), f"the canary for {name} went unnoticed: {noticed}"
    print("%d functions, %d constants and %d structures are the same; all %d canaries are noticed" %
          (*counts, len(canaries)))


main()

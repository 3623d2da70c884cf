#!/usr/bin/env python3
"""Checks that every C++ file includes what it uses, directly or through headers of the project that it includes, and that it uses each
header of the project that it includes.

CI compiles the files of a library as one (bazel/joined_source.bzl), where a missing include is satisfied by a neighbor. Only a build file
by file (--define=sources=single) would notice, which takes an hour; this test takes seconds. It knows the names of the standard library and
the namespaces of other libraries from tables, and the names of the project from its formatting (declarations in a namespace start at the
beginning of a line), and follows includes from header to header like a compiler. It does not detect a class that is only forward-declared
where its definition is needed, nor names used through a namespace or a member.

It also finds calls that read or write numbers by the locale of the process. Programs that load the library may have set one with a decimal
comma; std::to_chars and std::from_chars do not depend on it."""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bazel")]
from include_direction_test import ALLOWED, FREE, INCLUDE, room_of, source_files  # noqa: E402
from join_sources import DECLARED, TOKEN  # noqa: E402

# Headers of the standard library and the names in std that they provide. A name may have several headers.
STANDARD = {
    "algorithm": "adjacent_find all_of any_of binary_search clamp copy copy_backward copy_if copy_n count count_if equal equal_range fill"
    " fill_n find find_end find_first_of find_if find_if_not for_each for_each_n generate generate_n includes inplace_merge is_heap"
    " is_partitioned is_permutation is_sorted is_sorted_until lexicographical_compare lower_bound make_heap max max_element merge min"
    " min_element minmax minmax_element mismatch move_backward next_permutation none_of nth_element partial_sort partial_sort_copy"
    " partition partition_copy partition_point pop_heap prev_permutation push_heap remove remove_if replace replace_if reverse"
    " reverse_copy rotate rotate_copy search set_difference set_intersection set_union shuffle sort sort_heap stable_partition stable_sort"
    " swap_ranges transform unique unique_copy upper_bound",
    "any": "any any_cast bad_any_cast",
    "array": "array",
    "atomic": "atomic atomic_bool atomic_flag atomic_ref atomic_thread_fence memory_order memory_order_acq_rel memory_order_acquire"
    " memory_order_relaxed memory_order_release memory_order_seq_cst",
    "barrier": "barrier",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount rotl rotr",
    "bitset": "bitset",
    "cctype": "isalnum isalpha iscntrl isdigit islower isprint ispunct isspace isupper isxdigit tolower toupper",
    "charconv": "chars_format from_chars from_chars_result to_chars",
    "chrono": "chrono",
    "cmath": "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin"
    " fmod frexp hypot ilogb isfinite isinf isnan isnormal ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan"
    " nanf nearbyint nextafter pow remainder remquo rint round scalbn signbit sin sinh sqrt tan tanh tgamma trunc",
    "compare": "partial_ordering strong_ordering weak_ordering",
    "complex": "complex conj polar",
    "concepts": "convertible_to derived_from floating_point integral invocable same_as signed_integral unsigned_integral",
    "condition_variable": "condition_variable condition_variable_any cv_status",
    "csetjmp": "jmp_buf longjmp",
    "csignal": "raise sig_atomic_t signal",
    "cstddef": "byte max_align_t nullptr_t ptrdiff_t size_t to_integer",
    "cstdint": "int16_t int32_t int64_t int8_t intptr_t uint16_t uint32_t uint64_t uint8_t uintptr_t",
    "cstdio": "FILE fclose ferror fflush fgetc fgets fopen fprintf fputc fputs fread fscanf fseek ftell fwrite getc perror printf putc"
    " putchar puts remove rename rewind setvbuf snprintf sscanf tmpfile vfprintf vsnprintf",
    "cstdlib": "_Exit abort abs aligned_alloc atexit atof atoi atol atoll calloc div exit free getenv malloc qsort quick_exit rand realloc"
    " srand strtod strtof strtol strtoll strtoul strtoull system",
    "cstring": "memccpy memchr memcmp memcpy memmove memset strcat strchr strcmp strcpy strerror strlen strncat strncmp strncpy strrchr"
    " strstr strtok",
    "ctime": "clock ctime difftime gmtime localtime mktime strftime time time_t tm",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr make_exception_ptr nested_exception rethrow_exception rethrow_if_nested"
    " set_terminate terminate terminate_handler throw_with_nested uncaught_exceptions",
    "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "bind bit_and bit_or bit_xor cref divides equal_to function greater greater_equal hash identity invoke less less_equal"
    " logical_and minus modulus multiplies negate not_equal_to not_fn plus ref reference_wrapper",
    "future": "async future future_status launch packaged_task promise",
    "initializer_list": "initializer_list",
    "iomanip": "hex put_time quoted setfill setprecision setw",
    "ios": "dec fixed hex ios ios_base scientific streambuf streamoff streampos streamsize",
    "iostream": "cerr cin clog cout endl",
    "istream": "istream ws",
    "iterator": "advance back_inserter begin cbegin cend crbegin data distance empty end forward_iterator_tag front_inserter istream_iterator"
    " input_iterator_tag inserter istreambuf_iterator iterator_traits make_move_iterator make_reverse_iterator next ostream_iterator prev"
    " random_access_iterator_tag rbegin rend reverse_iterator size ssize",
    "latch": "latch",
    "limits": "numeric_limits",
    "list": "list",
    "locale": "locale numpunct",
    "map": "map multimap",
    "memory": "addressof align allocate_shared allocator const_pointer_cast construct_at default_delete destroy_at dynamic_pointer_cast"
    " enable_shared_from_this make_shared make_shared_for_overwrite make_unique make_unique_for_overwrite owner_less pointer_traits"
    " shared_ptr static_pointer_cast to_address uninitialized_copy uninitialized_fill unique_ptr weak_ptr",
    "mutex": "adopt_lock call_once defer_lock lock lock_guard mutex once_flag recursive_mutex scoped_lock timed_mutex try_lock try_to_lock"
    " unique_lock",
    "new": "align_val_t bad_alloc bad_array_new_length get_new_handler hardware_destructive_interference_size launder new_handler nothrow"
    " set_new_handler",
    "numbers": "numbers",
    "numeric": "accumulate adjacent_difference exclusive_scan gcd inclusive_scan inner_product iota lcm midpoint partial_sum reduce"
    " transform_reduce",
    "optional": "bad_optional_access make_optional nullopt optional",
    "ostream": "endl flush ostream",
    "queue": "priority_queue queue",
    "random": "bernoulli_distribution discrete_distribution exponential_distribution minstd_rand mt19937 mt19937_64 normal_distribution"
    " random_device seed_seq uniform_int_distribution uniform_real_distribution",
    "ranges": "ranges",
    "ratio": "micro milli nano ratio",
    "regex": "cmatch regex regex_match regex_replace regex_search smatch sregex_iterator",
    "semaphore": "binary_semaphore counting_semaphore",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "source_location": "source_location",
    "span": "as_bytes as_writable_bytes dynamic_extent span",
    "sstream": "istringstream ostringstream stringstream",
    "stack": "stack",
    "stdexcept": "domain_error invalid_argument length_error logic_error out_of_range overflow_error range_error runtime_error"
    " underflow_error",
    "stop_token": "stop_callback stop_source stop_token",
    "streambuf": "streambuf",
    "string": "basic_string char_traits getline hash stod stof stoi stol stoll stoul stoull string to_string u16string u8string wstring",
    "string_view": "basic_string_view string_view",
    "system_error": "errc error_category error_code error_condition generic_category make_error_code system_category system_error",
    "thread": "jthread this_thread thread",
    "tuple": "apply forward_as_tuple get ignore make_tuple tie tuple tuple_cat tuple_element tuple_element_t tuple_size tuple_size_v",
    "type_traits": "add_const_t add_pointer_t bool_constant common_type_t conditional conditional_t conjunction_v decay decay_t enable_if enable_if_t"
    " false_type integral_constant invoke_result_t is_arithmetic_v is_array_v is_base_of_v is_class_v is_const_v is_constant_evaluated"
    " is_constructible_v is_convertible_v is_copy_constructible_v is_default_constructible_v is_empty_v is_enum_v is_floating_point_v"
    " is_function_v is_integral_v is_invocable_r_v is_invocable_v is_lvalue_reference_v is_move_constructible_v"
    " is_nothrow_move_constructible_v is_pointer_v is_same is_same_v is_signed_v is_standard_layout_v is_trivial_v is_trivially_copyable_v"
    " is_trivially_destructible_v is_unsigned_v is_void_v make_signed_t make_unsigned_t remove_const_t remove_cv_t remove_cvref_t"
    " remove_pointer_t remove_reference_t true_type type_identity underlying_type_t void_t",
    "typeindex": "type_index",
    "typeinfo": "bad_cast type_info",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_multiset unordered_set",
    "utility": "as_const cmp_equal cmp_greater cmp_less declval exchange forward in_place in_place_t index_sequence index_sequence_for"
    " integer_sequence make_index_sequence make_pair move pair piecewise_construct swap tie to_underlying unreachable",
    "valarray": "valarray",
    "variant": "bad_variant_access get get_if holds_alternative monostate variant variant_alternative_t variant_size_v visit",
    "vector": "vector",
}
# Names that further headers provide, by the standard or in all implementations.
CONTAINERS = ("array", "deque", "map", "set", "span", "string", "string_view", "unordered_map", "vector")
MORE = {
    "begin": CONTAINERS, "end": CONTAINERS, "size": CONTAINERS, "ssize": CONTAINERS, "data": CONTAINERS, "empty": CONTAINERS,
    "next": CONTAINERS, "prev": CONTAINERS, "advance": CONTAINERS, "distance": CONTAINERS, "forward": (*CONTAINERS, "functional", "memory"),
    "size_t": (*CONTAINERS, "cstdint", "cstdio", "cstdlib", "cstring", "ctime"), "make_pair": ("map", "unordered_map"),
    "istream": ("fstream", "iosfwd", "iostream", "sstream"),
    "erase": ("deque", "string", "vector"), "erase_if": ("deque", "map", "set", "string", "unordered_map", "vector"),
    "get": ("array", "tuple", "utility", "variant"),
    "initializer_list": ("deque", "map", "set", "string", "unordered_map", "vector"),
    "pair": ("map", "unordered_map"), "ios": ("fstream", "iostream", "sstream"), "ostream": ("fstream", "iosfwd", "iostream", "sstream"),
    "less": ("map", "set"), "milli": ("chrono",), "micro": ("chrono",), "nano": ("chrono",), "stop_token": ("thread",),
    "move": (*CONTAINERS, "algorithm", "functional", "memory", "optional"), "swap": (*CONTAINERS, "algorithm", "memory"),
    "ranges": ("algorithm", "span"), "error_code": ("filesystem",), "streamsize": ("fstream", "iostream", "sstream"),
    "streamoff": ("fstream", "iostream", "sstream"),
    "getline": ("fstream",), "errc": ("charconv",), "copy": ("filesystem",),
}  # fmt: skip

# Declarations at the beginning of a line belong to a namespace. The last pattern matches constants anywhere.
AT_THE_MARGIN = DECLARED[:-1]
FORWARD = re.compile(r"^ *(?:friend )?(?:class|struct|enum class) (\w+)(?: : [\w:]+)?;$", re.M)
# Within a std::function that a function returns.
SIGNATURE = re.compile(r"(?<=function)<[^<>()\n]*\([^()\n]*\)>")
MACRO = re.compile(r"^#define (\w+)", re.M)
WORDS = ("alignas", "__attribute__", "static_assert", "decltype", "noexcept")
# How a name is declared within a class, a function or a template: after a type a variable, a member or a parameter, ...
WITHIN = (
    re.compile(
        r"\b(?!(?:return|new|else|case|throw|const|constexpr|static|inline|typename|class|struct|enum|union|virtual|explicit|mutable|friend"
        r"|extern|not|and|or|delete|goto|operator|public|private|protected|thread_local) )\w+[>&*]*(?:\[\])? (?=[&*]*(\w+)\b)"
    ),
    re.compile(r"\b(?:class|struct|enum class|enum|union|typename|using) (\w+)(?: [:={]|[,>{=])"),
    re.compile(r"\(\*(\w+)\)\("),
    re.compile(r"(?:^ +|[{,] ?)(k[A-Z]\w*)(?=,|$|\}| =| \})", re.M),
)
# Names of tests are those of what they test.
TEST_NAMES = re.compile(r"\b(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\(\w+, \w+")
# a.b, a->b, A::b and the field .b = of a braced list.
MEMBER = re.compile(r"(?:\.|->|::)(\w+)")
# What only some headers declare at the beginning of a line: enumerators of an enumeration without a scope, and variables defined elsewhere.
ENUMERATORS = re.compile(r"^enum (?:\w+ )?(?:: \w+ )?\{([^}]*)\}", re.M)
EXTERN = re.compile(r"^extern [^;(]*?(\w+)(?:\[\w*\])?;", re.M)
STD_NAME = re.compile(r"\bstd::(\w+)")
# Namespaces of libraries, and a pattern of their headers' names.
LIBRARIES = {
    "CLI": "CLI/", "cudnn_frontend": "cudnn_frontend", "dnnl": "dnnl", "google": r"google/protobuf/|onnx/|.*\.pb\.h", "nlohmann": "nlohmann/",
    "onnx": "onnx/", "testing": "gtest/|gmock/", "toml": r"toml\+\+/",
}  # fmt: skip


def code_of(text):
    """Without comments and strings."""
    return TEST_NAMES.sub("", TOKEN.sub(lambda match: match.group() if match["name"] else " ", text))


class Sources:
    """The files by path, with the names that each declares and uses, and its includes."""

    def __init__(self, files):
        self.files = files
        self.code = {path: code_of(text) for path, text in files.items()}
        self.includes = {path: [self.resolve(target) for _, target in INCLUDE.findall(text)] for path, text in files.items()}
        self.declared = {path: self.declarations(code) for path, code in self.code.items()}
        self.within = {path: set().union(FORWARD.findall(code), *(pattern.findall(code) for pattern in WITHIN)) for path, code in self.code.items()}

    def resolve(self, target):
        """Programs include it as `gradloom/x.h`."""
        return f"include/{target}" if f"include/{target}" in self.files else target

    def reached(self, path):
        """Everything that the file includes, directly or through headers of the project: paths of the latter, and names of foreign headers.
        """
        seen, todo = set(), [path]
        while todo:
            for target in self.includes.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    def declarations(self, code):
        code = SIGNATURE.sub("", FORWARD.sub("", code))
        return set(MACRO.findall(code)).union(*(pattern.findall(code) for pattern in AT_THE_MARGIN)).difference(WORDS)


def headers_of_std():
    """Name in std -> the headers that provide it."""
    headers = {name: set(more) for name, more in MORE.items()}
    for header, names in STANDARD.items():
        for name in names.split():
            headers.setdefault(name, set()).add(header)
    return headers


def may_include(path, header):
    """By the include table: a declaration in a directory that the file may not include is a different thing of the same name."""
    room, to = room_of(path), room_of(header)
    return room == to or (to not in ("tests", "include/gradloom") if room in FREE else to in ALLOWED[room])


def violations(files):
    """Returns a line 'file: what' for each name that a file uses without including its header. `files` maps paths to text."""
    sources = Sources(files)
    of_std = headers_of_std()
    # The headers that declare a name of the project.
    ours = {}
    for path in files:
        if path.endswith((".h", ".cuh")):
            for name in sources.declared[path]:
                ours.setdefault(name, set()).add(path)
    for path, code in sources.code.items():
        reached = sources.reached(path)
        for name in sorted(set(STD_NAME.findall(code))):
            if name not in of_std:
                yield f"{path}: std::{name}: this test does not know its header"
            elif not of_std[name] & reached:
                yield f"{path}: std::{name} needs <{'> or <'.join(sorted(of_std[name]))}>"
        seen = [path, *(reached & files.keys())]
        for namespace, headers in LIBRARIES.items():
            if not re.search(rf"(?<![\w:]){namespace}::", code) or any(re.match(headers, header) for header in reached):
                continue
            # A class may be declared without its header.
            if not any(f"namespace {namespace} {{" in sources.code[other] for other in seen):
                yield f"{path}: {namespace}:: needs a header of {headers}"
        free = {match["name"] for match in TOKEN.finditer(code) if match["name"] and not match["of"]}
        for name in sorted(free & ours.keys()):
            if any(name in sources.declared[other] or name in sources.within[other] for other in seen):
                continue
            places = sorted(header for header in ours[name] if may_include(path, header))
            if places:
                yield f"{path}: {name} needs {' or '.join(places)}"


def further_names(code):
    """Enumerators without a scope and variables defined elsewhere."""
    listed = (re.findall(r"\w+", part.split("=")[0])[:1] for text in ENUMERATORS.findall(code) for part in text.split(","))
    return set(EXTERN.findall(code)).union(*listed)


def superfluous(files):
    """Returns a line 'file: what' for each header of the project that a file, not a header, includes although none of its names occurs
    there. A file, and its test, may include its own header for the names that others use.
    """
    sources = Sources(files)
    for path, code in sources.code.items():
        if path.endswith((".h", ".cuh")):
            continue
        own = pathlib.PurePath(path).stem.removesuffix("_test")
        used = {match["name"] for match in TOKEN.finditer(code) if match["name"]}
        members = set(MEMBER.findall(code))
        for header in sources.includes[path]:
            if not sources.declared.get(header) or pathlib.PurePath(header).stem == own:
                continue
            names = sources.declared[header] | further_names(sources.code[header])
            if not used & names and not members & sources.within[header]:
                yield f"{path}: includes {header}, but uses none of its names"


BY_LOCALE = re.compile(r"printf\([^;]*?%[-+ #0-9.*]*[aAeEfFgG]\b|\b(?:std::|::)?(?:sto(?:d|f|ld)|atof|strto(?:d|f|ld))\(")


def by_locale(files):
    """Calls that depend on the locale, in code that other programs load. The command has no locale, nor have the programs that it starts."""
    command = ("tools/dist/", "tools/gradloom/", "tools/launch/")
    for path, code in files.items():
        if path.startswith(("compiler/", "kernels/", "runtime/", "tools/")) and not path.startswith(command):
            for found in BY_LOCALE.finditer(code):
                yield f"{path}: {found[0].splitlines()[0]}: depends on the locale"


# What the test must detect, and what it must not report.
PLANTED = {
    "compiler/passes/planted.h": """#include <vector>
struct Planted;
class Planted2 {
 public:
  void Split(int count);
};
std::vector<int> SplitPlanted(int count);
""",
    "compiler/passes/fine.cc": """#include "compiler/passes/planted.h"
// std::sort and Unknown are of a comment.
std::vector<int> Fine() { return SplitPlanted(std::vector<int>{1}.size()); }
""",
    "compiler/passes/idle.cc": """#include "compiler/passes/planted.h"
// SplitPlanted is of a comment.
int Idle() { return 1; }
""",
    "compiler/passes/faulty.cc": """#include <map>
int Faulty() { return SplitPlanted(std::max(1, 2))[0]; }
""",
    "compiler/onnx/foreign.h": "void Read(const onnx::ModelProto& model);\n",
    "runtime/base/other.cc": "int SplitPlanted(int x) { return x; }\nint Other() { return SplitPlanted(std::no_such_name); }\n",
}


def main():
    planted = list(violations(PLANTED))
    assert planted == [
        "compiler/passes/faulty.cc: std::max needs <algorithm>",
        "compiler/passes/faulty.cc: SplitPlanted needs compiler/passes/planted.h",
        "compiler/onnx/foreign.h: onnx:: needs a header of onnx/",
        "runtime/base/other.cc: std::no_such_name: this test does not know its header",
    ], planted
    planted = list(superfluous(PLANTED))
    assert planted == ["compiler/passes/idle.cc: includes compiler/passes/planted.h, but uses none of its names"], planted
    texts = {"runtime/base/x.cc": 'std::snprintf(t, 9, "%d of %.9e", n, x); std::stod(t); strtod_l(t); std::printf("% of %d", n);'}
    assert len(list(by_locale(texts))) == 2, list(by_locale(texts))
    files = source_files(pathlib.Path(sys.argv[1]).resolve().parent)
    found = list(violations(files)) + list(superfluous(files))
    print("\n".join(found))
    print(f"{len(files)} files, {len(found)} headers too few or too many")
    local = list(by_locale(files))
    print("\n".join(local))
    found += local
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

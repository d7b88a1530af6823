// The opaque test plugin with one function of its tables exchanged: faults in what only it has, its own weights and KV
// caches.
#include <cstring>

#include "plugins/sdk/backplane_plugin.hpp"
#include "tests/unit/conformance/suite_runs.h"

namespace backplane::conformance_test {
namespace {

using conformance::Target;

const bp_tables& sound() { return registry().find_device("opaque:f32").plugin->tables(); }

// ---- mutations

// Of an array of structs, a copy of the first.
template <class Struct>
Struct first_of(const Struct* from) {
  return plugin::read_struct(from);
}

struct KnownWeight {
  bp_weight_part part;
  bp_weight_desc desc;
  explicit KnownWeight(const bp_weight_desc* from) : part(first_of(from->parts)), desc(first_of(from)) {
    part.flags &= BP_WEIGHT_TRANSPOSED;
    desc.uses &= BP_USE_LINEAR | BP_USE_EMBED;
    if (plugin::type_info(part.type).block_elements == 0) part.type = BP_TYPE_F32;
    if (desc.part_count == 1) desc.parts = &part;
  }
};

bp_status size_any_weight(bp_device device, bp_context context, const bp_weight_desc* desc, std::uint64_t* bytes) {
  const KnownWeight known(desc);
  return sound().weights->packed_bytes(device, context, &known.desc, bytes);
}

bp_status create_any_weight(bp_device device, bp_context context, const bp_weight_desc* desc, bp_weight* weight) {
  const KnownWeight known(desc);
  return sound().weights->create(device, context, &known.desc, weight);
}

bp_kv_desc known_cache(const bp_kv_desc* from) {
  bp_kv_desc desc = first_of(from);
  desc.flags = 0;
  if (plugin::type_info(desc.type).block_elements == 0) desc.type = BP_TYPE_F32;
  return desc;
}

bp_status size_any_cache(bp_device device, bp_context context, const bp_kv_desc* desc, std::uint64_t* bytes) {
  const bp_kv_desc known = known_cache(desc);
  return sound().kv->bytes(device, context, &known, bytes);
}

bp_status create_any_cache(bp_device device, bp_context context, const bp_kv_desc* desc, bp_kv* kv) {
  const bp_kv_desc known = known_cache(desc);
  return sound().kv->create(device, context, &known, kv);
}

// Pages come back the other way round.
bp_status import_reversed(bp_device device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                          const std::int32_t* pages, std::uint64_t count, const void* data) {
  const std::vector<std::int32_t> reversed(std::reverse_iterator(pages + count), std::reverse_iterator(pages));
  return sound().kv->import_native(device, stream, context, kv, layer, reversed.data(), count, data);
}

// As if each page were one byte longer.
bp_status export_too_much(bp_device device, bp_stream stream, bp_context context, bp_kv kv, std::uint32_t layer,
                          const std::int32_t* pages, std::uint64_t count, void* data) {
  std::uint64_t bytes = 0;
  sound().kv->native_page_bytes(device, context, kv, layer, &bytes);
  std::memset(static_cast<std::byte*>(data) + count * bytes, 0, count);
  return sound().kv->export_native(device, stream, context, kv, layer, pages, count, data);
}

bp_status change_the_tag(bp_device device, bp_context context, bp_kv kv, char tag[64]) {
  static int calls = 0;
  const bp_status status = sound().kv->native_layout(device, context, kv, tag);
  tag[0] = static_cast<char>('a' + calls++ % 26);
  return status;
}

struct Mutant {
  const char* name;
  void (*change)(bp_tables& tables);
  const char* filter;
  std::set<std::string> must;  // cases that fail, up to their second slash
};

void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.name; }

const Mutant kMutants[] = {
    {"any_weight",
     [](bp_tables& t) { t.weights->packed_bytes = size_any_weight, t.weights->create = create_any_weight; },
     "refusals/",
     {"refusals/weight_flags", "refusals/weight_uses", "refusals/weight_part_types"}},
    {"any_weight_at_create",
     [](bp_tables& t) { t.weights->create = create_any_weight; },
     "refusals/",
     {"refusals/weight_flags", "refusals/weight_uses", "refusals/weight_part_types"}},
    {"any_cache",
     [](bp_tables& t) { t.kv->bytes = size_any_cache, t.kv->create = create_any_cache; },
     "refusals/",
     {"refusals/kv_flags", "refusals/kv_types"}},
    {"native_order", [](bp_tables& t) { t.kv->import_native = import_reversed; }, "kv/", {"kv/native"}},
    {"native_bytes", [](bp_tables& t) { t.kv->export_native = export_too_much; }, "kv/", {"kv/native"}},
    {"native_tag", [](bp_tables& t) { t.kv->native_layout = change_the_tag; }, "kv/", {"kv/native"}},
};

class MutantTest : public ::testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsFoundAndNamed) {
  const Mutant& mutant = GetParam();
  bp_weights_table weights = *sound().weights;
  bp_kv_table kv = *sound().kv;
  bp_tables tables = sound();
  tables.weights = &weights;
  tables.kv = &kv;
  mutant.change(tables);
  conformance::Options how;
  how.filter = mutant.filter;
  const conformance::Summary summary =
      conformance::run({{&tables, "mutant"}, target("opaque:f32").index, {}}, target("cpu:f64"), how);
  std::set<std::string> found;
  for (const conformance::Result& r : summary.results) {
    if (r.verdict == conformance::Verdict::kFailed)
      found.insert(r.name.substr(0, r.name.find('/', r.name.find('/') + 1)));
  }
  EXPECT_EQ(found, mutant.must) << failures(summary);
  std::printf("| %s | %s |\n", mutant.name, counts(summary).c_str());
}

INSTANTIATE_TEST_SUITE_P(All, MutantTest, ::testing::ValuesIn(kMutants),
                         [](const auto& mutant) { return std::string(mutant.param.name); });

}  // namespace
}  // namespace backplane::conformance_test

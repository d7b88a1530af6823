// Normalizers, pre-tokenizers, post-processors and decoders of a tokenizer.json.
#include <algorithm>
#include <memory>

#include "core/formats/tokenizer_json.h"
#include "core/formats/utf8.h"

namespace backplane::formats {
namespace {

using text::NormalizerStep;
using text::PreTokenizerStep;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr int kMaxNesting = 16;

[[noreturn]] void refuse_type(std::string_view part, std::string_view type, std::string_view where) {
  json_refuse("the " + std::string(part) + " " + quote_name(type) + " isn't supported", where);
}

// The components of a Sequence, in its field `list`; any other component is a list of one.
std::vector<JsonElement> flatten(JsonElement component, std::string_view list, std::string_view where, int depth = 0) {
  if (json_text(component, "type", "", where) != "Sequence") return {component};
  JsonElement field;
  simdjson::dom::array items;
  if (depth > kMaxNesting || !json_field(component, list, field) || field.get(items) != simdjson::SUCCESS) {
    json_refuse("a Sequence without its list \"" + std::string(list) + "\", or nested too deeply", where);
  }
  std::vector<JsonElement> out;
  for (const JsonElement item : items) {
    const auto inner = flatten(item, list, where, depth + 1);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

std::string quote_regex(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    const bool plain = static_cast<unsigned char>(c) >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                       (c >= 'a' && c <= 'z') || c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

struct Pattern {
  std::string_view literal, regex;  // one of them is set
};

Pattern read_pattern(JsonElement component, std::string_view where) {
  JsonElement pattern;
  Pattern out;
  if (json_field(component, "pattern", pattern)) {
    out.literal = json_text(pattern, "String", "", where);
    out.regex = json_text(pattern, "Regex", "", where);
  }
  if (out.literal.empty() == out.regex.empty()) json_refuse("a component needs one pattern, String or Regex", where);
  return out;
}

std::shared_ptr<const text::Regex> compile(std::string_view pattern, std::string_view where) {
  return std::make_shared<const text::Regex>(pattern, where);
}

std::string decode_base64(std::string_view encoded, std::string_view where) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : encoded) {
    if (c == '=') break;
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) json_refuse("the Precompiled normalizer isn't base64", where);
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return out;
}

NormalizerStep read_normalizer_step(JsonElement component, std::string_view where) {
  const std::string_view type = json_text(component, "type", "", where);
  if (type == "NFC") return text::UnicodeStep{text::UnicodeForm::kNfc};
  if (type == "NFD") return text::UnicodeStep{text::UnicodeForm::kNfd};
  if (type == "NFKC") return text::UnicodeStep{text::UnicodeForm::kNfkc};
  if (type == "NFKD") return text::UnicodeStep{text::UnicodeForm::kNfkd};
  if (type == "Lowercase") return text::LowercaseStep{};
  if (type == "Prepend") return text::PrependStep{std::string(json_text(component, "prepend", "", where))};
  if (type == "Strip") {
    return text::StripStep{json_flag(component, "strip_left", true, where),
                           json_flag(component, "strip_right", true, where)};
  }
  if (type == "Replace") {
    const Pattern pattern = read_pattern(component, where);
    return text::ReplaceStep{std::string(pattern.literal),
                             pattern.regex.empty() ? nullptr : compile(pattern.regex, where),
                             std::string(json_text(component, "content", "", where))};
  }
  if (type == "Precompiled") {
    const std::string rules = decode_base64(json_text(component, "precompiled_charsmap", "", where), where);
    return text::SentencePieceStep{.dummy_prefix = false,
                                   .remove_extra_spaces = false,
                                   .escape_spaces = false,
                                   .charsmap = std::make_shared<const text::Charsmap>(rules, where),
                                   .user_defined = nullptr};
  }
  refuse_type("normalizer", type, where);
}

text::SplitBehavior read_behavior(JsonElement component, std::string_view fallback, std::string_view where) {
  const std::string_view behavior = json_text(component, "behavior", fallback, where);
  if (behavior == "Removed") return text::SplitBehavior::kRemoved;
  if (behavior == "Isolated") return text::SplitBehavior::kIsolated;
  if (behavior == "MergedWithPrevious") return text::SplitBehavior::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return text::SplitBehavior::kMergedWithNext;
  if (behavior == "Contiguous") return text::SplitBehavior::kContiguous;
  refuse_type("split behavior", behavior, where);
}

PreTokenizerStep read_split(JsonElement component, std::string_view where) {
  const Pattern pattern = read_pattern(component, where);
  const text::SplitBehavior behavior = read_behavior(component, "Isolated", where);
  const bool invert = json_flag(component, "invert", false, where);
  // The known patterns match every character, so what is done with the rest of the text makes no difference.
  const bool pieces_are_matches =
      (behavior == text::SplitBehavior::kIsolated) || (behavior == text::SplitBehavior::kRemoved && invert);
  if (const auto scanner = text::scanner_for_pattern(pattern.regex); scanner && pieces_are_matches) {
    return text::ScannerStep{*scanner};
  }
  const std::string regex = pattern.regex.empty() ? quote_regex(pattern.literal) : std::string(pattern.regex);
  return text::SplitStep{compile(regex, where), behavior, invert};
}

text::MetaspaceStep read_metaspace(JsonElement component, std::string_view where) {
  using Prepend = text::MetaspaceStep::Prepend;
  text::MetaspaceStep step;
  step.mark = std::string(json_text(component, "replacement", kSpaceMark, where));
  if (step.mark != kSpaceMark) refuse_type("Metaspace replacement", step.mark, where);
  const bool prefix = json_flag(component, "add_prefix_space", true, where);
  const std::string_view scheme = json_text(component, "prepend_scheme", prefix ? "always" : "never", where);
  if (scheme != "always" && scheme != "first" && scheme != "never") refuse_type("prepend scheme", scheme, where);
  step.prepend = scheme == "always" ? Prepend::kAlways : scheme == "first" ? Prepend::kFirst : Prepend::kNever;
  step.split = json_flag(component, "split", true, where);
  return step;
}

bool is_single_digits(JsonElement component, std::string_view where) {
  return json_text(component, "type", "", where) == "Digits" && json_flag(component, "individual_digits", false, where);
}

void read_byte_level(JsonElement component, bool after_single_digits, bool cut, text::TokenizerSpec& spec) {
  if (json_flag(component, "add_prefix_space", true, spec.where)) {
    if (cut) json_refuse("the pre-tokenizer ByteLevel adds a space behind one that cuts the text", spec.where);
    spec.pre_tokenizer.emplace_back(text::PrefixSpaceStep{});
  }
  if (!json_flag(component, "use_regex", true, spec.where)) return;
  if (after_single_digits) spec.pre_tokenizer.pop_back();  // one scanner does both
  spec.pre_tokenizer.emplace_back(
      text::ScannerStep{after_single_digits ? text::ScannerKind::kSmolLm : text::ScannerKind::kGpt2});
}

std::int64_t read_count(JsonElement object, std::string_view key, std::string_view where) {
  JsonElement field;
  std::int64_t value = 0;
  if (json_field(object, key, field) && field.get(value) != simdjson::SUCCESS) {
    json_refuse(std::string(key) + " isn't a number", where);
  }
  return value;
}

void check_replace_decoder(JsonElement step, std::string_view where) {
  if (read_pattern(step, where).literal != kSpaceMark || json_text(step, "content", "", where) != " ") {
    json_refuse("the decoder Replace is only supported for U+2581 and a space", where);
  }
}

}  // namespace

void read_json_normalizer(JsonElement root, text::TokenizerSpec& spec) {
  JsonElement normalizer;
  if (!json_field(root, "normalizer", normalizer)) return;
  for (const JsonElement step : flatten(normalizer, "normalizers", spec.where)) {
    spec.normalizer.push_back(read_normalizer_step(step, spec.where));
  }
}

void read_json_pre_tokenizer(JsonElement root, text::TokenizerSpec& spec) {
  spec.alphabet = text::PieceAlphabet::kPlain;  // unless the decoder says otherwise
  spec.bpe.byte_level = false;
  JsonElement pre_tokenizer;
  if (!json_field(root, "pre_tokenizer", pre_tokenizer)) return;
  const auto steps = flatten(pre_tokenizer, "pretokenizers", spec.where);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string_view type = json_text(steps[i], "type", "", spec.where);
    const bool cut = !spec.pre_tokenizer.empty();
    if (spec.bpe.byte_level)
      json_refuse("the pre-tokenizer " + quote_name(type) + " behind ByteLevel isn't supported", spec.where);
    if (type == "ByteLevel") {
      read_byte_level(steps[i], i == 1 && is_single_digits(steps[0], spec.where), cut, spec);
      spec.alphabet = text::PieceAlphabet::kByteLevel;
      spec.bpe.byte_level = true;
    } else if (type == "Split") {
      spec.pre_tokenizer.push_back(read_split(steps[i], spec.where));
    } else if (type == "Digits") {
      const bool single = is_single_digits(steps[i], spec.where);
      spec.pre_tokenizer.emplace_back(text::SplitStep{compile(single ? "\\p{N}" : "\\p{N}+", spec.where)});
    } else if (type == "Punctuation") {
      spec.pre_tokenizer.emplace_back(
          text::SplitStep{compile("[\\p{P}$+<=>^`|~]", spec.where), read_behavior(steps[i], "Isolated", spec.where)});
    } else if (type == "Metaspace" && !cut) {
      spec.pre_tokenizer.emplace_back(read_metaspace(steps[i], spec.where));
    } else {
      refuse_type("pre-tokenizer", type, spec.where);
    }
  }
}

namespace {

void read_template(JsonElement processor, text::TokenizerSpec& spec) {
  JsonElement field, token, described, ids_field;
  simdjson::dom::array items, ids;
  if (!json_field(processor, "single", field) || field.get(items) != simdjson::SUCCESS) {
    json_refuse("the TemplateProcessing has no \"single\"", spec.where);
  }
  bool behind = false;
  for (const JsonElement item : items) {
    if (json_field(item, "Sequence", token)) {
      if (behind) json_refuse("the TemplateProcessing repeats the text", spec.where);
      behind = true;
      continue;
    }
    if (!json_field(item, "SpecialToken", token)) json_refuse("the TemplateProcessing has an unknown item", spec.where);
    const std::string_view name = json_text(token, "id", "", spec.where);
    const bool known = json_field(processor, "special_tokens", field) && json_field(field, name, described) &&
                       json_field(described, "ids", ids_field) && ids_field.get(ids) == simdjson::SUCCESS;
    if (!known) json_refuse("the TemplateProcessing names the token " + quote_name(name) + " without ids", spec.where);
    for (const JsonElement id : ids) {
      std::int64_t value = -1;
      if (id.get(value) != simdjson::SUCCESS || value < 0 || static_cast<std::size_t>(value) >= spec.pieces.size()) {
        json_refuse("the TemplateProcessing has an id that isn't in the vocabulary", spec.where);
      }
      (behind ? spec.suffix : spec.prefix).push_back(static_cast<text::TokenId>(value));
    }
  }
}

}  // namespace

void read_json_post_processor(JsonElement root, text::TokenizerSpec& spec) {
  JsonElement processor;
  if (!json_field(root, "post_processor", processor)) return;
  for (const JsonElement step : flatten(processor, "processors", spec.where)) {
    const std::string_view type = json_text(step, "type", "", spec.where);
    if (type == "TemplateProcessing") {
      read_template(step, spec);
    } else if (type != "ByteLevel") {  // which only moves offsets
      refuse_type("post-processor", type, spec.where);
    }
  }
}

void read_json_decoder(JsonElement root, text::TokenizerSpec& spec) {
  JsonElement decoder;
  if (!json_field(root, "decoder", decoder)) return;
  const bool byte_level = spec.alphabet == text::PieceAlphabet::kByteLevel;
  for (const JsonElement step : flatten(decoder, "decoders", spec.where)) {
    const std::string_view type = json_text(step, "type", "", spec.where);
    if ((type == "ByteLevel") != byte_level && type != "Fuse") {
      json_refuse("the decoder " + quote_name(type) + " doesn't fit the pre-tokenizer", spec.where);
    }
    if (type == "Replace") {
      check_replace_decoder(step, spec.where);
      spec.alphabet = text::PieceAlphabet::kMetaspace;
    } else if (type == "Strip") {
      const std::int64_t start = read_count(step, "start", spec.where), stop = read_count(step, "stop", spec.where);
      if (json_text(step, "content", "", spec.where) != " " || start < 0 || start > 1 || stop != 0) {
        json_refuse("the decoder Strip is only supported for one space at the start", spec.where);
      }
      spec.leading_space = start == 1 ? text::LeadingSpace::kDropOne : text::LeadingSpace::kKeep;
    } else if (type == "Metaspace") {
      const auto prepend = read_metaspace(step, spec.where).prepend;
      spec.leading_space =
          prepend == text::MetaspaceStep::Prepend::kNever ? text::LeadingSpace::kKeep : text::LeadingSpace::kDropOne;
      spec.alphabet = text::PieceAlphabet::kMetaspace;
    } else if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
      refuse_type("decoder", type, spec.where);
    }
  }
}

}  // namespace backplane::formats

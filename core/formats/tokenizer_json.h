// The components of a tokenizer.json. Internal to core/formats.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "core/text/tokenizer_spec.h"

namespace backplane::formats {

using JsonElement = simdjson::dom::element;

// Typed access; `where` is the file. A missing or null field gives the fallback, one of another type is
// Error{kBadFile}.
bool json_flag(JsonElement object, std::string_view key, bool fallback, std::string_view where);
std::string_view json_text(JsonElement object, std::string_view key, std::string_view fallback, std::string_view where);
// The field, or a null element.
bool json_field(JsonElement object, std::string_view key, JsonElement& out);
[[noreturn]] void json_refuse(std::string_view what, std::string_view where);

// Fill in spec.pieces, kinds, merges and bpe from "vocab" and "merges" objects; views into the parsed document.
void read_json_vocab(JsonElement vocab, std::size_t added_tokens, text::TokenizerSpec& spec);
void read_json_model(JsonElement root, text::TokenizerSpec& spec);
void read_json_added_tokens(JsonElement root, text::TokenizerSpec& spec);
// "a b", a merge of a and b.
text::BpeModel::Merge parse_merge(std::string_view line, std::string_view where);

// The components by their type; an unknown type or setting is an error that names it.
void read_json_normalizer(JsonElement root, text::TokenizerSpec& spec);
void read_json_pre_tokenizer(JsonElement root, text::TokenizerSpec& spec);
void read_json_post_processor(JsonElement root, text::TokenizerSpec& spec);
void read_json_decoder(JsonElement root, text::TokenizerSpec& spec);

}  // namespace backplane::formats

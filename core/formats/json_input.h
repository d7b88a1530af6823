// Strict reading of small JSON files that come with models.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace backplane::formats {

inline constexpr std::size_t kJsonDepth = 64;

// Refuses duplicate keys, nesting beyond kJsonDepth, zero bytes, anything after the value. `where` names the text in
// errors. Throws Error{kBadFile}.
nlohmann::json parse_json(std::string_view text, const std::string& where);
// The same for a file of at most `limit` bytes.
nlohmann::json parse_json_file(const std::filesystem::path& path, std::size_t limit);

// A copy in which arrays longer than `limit` are {"type": "array", "length", "first"}.
nlohmann::json cut_arrays(const nlohmann::json& value, std::size_t limit);

}  // namespace backplane::formats

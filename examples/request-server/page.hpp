// Pages from templates: {{name}} stands for a value, escaped for HTML; what is between {{#rows}} and {{/rows}} is repeated for
// each row.
#pragma once

#include <map>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

namespace page
{

using values = std::pmr::map<std::pmr::string, std::pmr::string, std::less<>>;

// A name that has no value, in the row or in `all`, stands for nothing.
std::pmr::string render(std::string_view text, const values &all, const std::pmr::vector<values> &rows,
                        std::pmr::memory_resource *resource);

} // namespace page

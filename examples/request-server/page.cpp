// Rendering in one pass over the template; a section's text is rendered once a row.
#include "page.hpp"

#include <utility>

namespace page
{
namespace
{

constexpr std::string_view opening = "{{", closing = "}}", rows_begin = "{{#rows}}", rows_end = "{{/rows}}";

void append_escaped(std::pmr::string &to, std::string_view text)
{
    for (const char c : text) {
        if (c == '&') to += "&amp;";
        else if (c == '<') to += "&lt;";
        else if (c == '>') to += "&gt;";
        else if (c == '"') to += "&quot;";
        else to += c;
    }
}

std::string_view look_up(std::string_view name, const values &row, const values &all)
{
    for (const values *each : {&row, &all})
        if (const auto found = each->find(name); found != each->end()) return found->second;
    return {};
}

void append_text(std::pmr::string &to, std::string_view text, const values &row, const values &all)
{
    for (std::size_t start; (start = text.find(opening)) != text.npos;) {
        const std::size_t end = text.find(closing, start);
        if (end == text.npos) break;
        to += text.substr(0, start);
        append_escaped(to, look_up(text.substr(start + opening.size(), end - start - opening.size()), row, all));
        text.remove_prefix(end + closing.size());
    }
    to += text;
}

// What is before the first `separator`, and what is behind; all and nothing where there is none.
std::pair<std::string_view, std::string_view> split(std::string_view text, std::string_view separator)
{
    const std::size_t at = text.find(separator);
    if (at == text.npos) return {text, {}};
    return {text.substr(0, at), text.substr(at + separator.size())};
}

} // namespace

std::pmr::string render(std::string_view text, const values &all, const std::pmr::vector<values> &rows,
                        std::pmr::memory_resource *resource)
{
    const auto [before, rest] = split(text, rows_begin);
    const auto [section, after] = split(rest, rows_end);
    std::pmr::string rendered(resource);
    append_text(rendered, before, all, all);
    for (const values &row : rows) append_text(rendered, section, row, all);
    append_text(rendered, after, all, all);
    return rendered;
}

} // namespace page
